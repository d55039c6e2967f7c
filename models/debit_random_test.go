package models_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// TestRandomLivesOfABatch runs workers that die or wake up late, the partner's cancellation and the
// deadline in random order, and checks the stored rows against the invariants.
func TestRandomLivesOfABatch(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	batches := 0
	rapid.Check(t, func(t *rapid.T) {
		batches++
		life := &batchLife{store: store, site: site, reference: fmt.Sprint(batches), before: map[int]models.BatchRow{}}
		life.submit(t)
		t.Repeat(map[string]func(*rapid.T){
			"claim":  life.claim,
			"finish": life.finish,
			"park":   life.park,
			"cancel": life.cancel,
			"leases run out": func(t *rapid.T) {
				life.exec(t, "UPDATE batch_rows SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL")
			},
			"time passes": func(t *rapid.T) {
				hours := rapid.SampledFrom([]int{1, 6, 12}).Draw(t, "hours")
				life.exec(t, fmt.Sprintf("UPDATE service_clock SET offset_ms = offset_ms + %d", int64(hours)*3_600_000))
			},
			"sweep": func(t *rapid.T) {
				if _, err := store.CloseOverdueBatch(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
					t.Fatal(err)
				}
			},
			"": life.check,
		})
	})
	for err := error(nil); err == nil; { // batches whose lives ended before the sweep had come to them
		if _, err = store.CloseOverdueBatch(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
			t.Fatal(err)
		}
	}
	modelstest.Audit(t, store)
}

// batchLife is one batch on its way. chunks are all claims that were ever made, the holders of lost
// leases among them.
type batchLife struct {
	store     *models.Store
	site      models.Site
	reference string
	task      models.TaskID
	chunks    []models.Chunk
	before    map[int]models.BatchRow
	debited   map[int]bool // what the rail would say: which rows were ever reported as succeeded
}

func (l *batchLife) submit(t *rapid.T) {
	done, err := l.store.SubmitBatch(t.Context(), modelstest.Batch(l.site, l.reference, "ada", "ada", "ada"))
	if err != nil {
		t.Fatal(err)
	}
	l.task, l.debited = done.Tasks[0], map[int]bool{}
}

func (l *batchLife) exec(t *rapid.T, query string) {
	if _, err := l.store.DB().ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func (l *batchLife) claim(t *rapid.T) {
	chunk, err := l.store.ClaimChunk(t.Context(), l.task, models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	if errors.Is(err, models.ErrNotFound) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(chunk.Rows) > 0 {
		l.chunks = append(l.chunks, chunk)
	}
}

func (l *batchLife) finish(t *rapid.T) {
	if len(l.chunks) == 0 {
		t.Skip("nothing is claimed")
	}
	chunk := rapid.SampledFrom(l.chunks).Draw(t, "chunk")
	row := rapid.SampledFrom(chunk.Rows).Draw(t, "row")
	result := models.RowResult{Index: row.Index, RailKey: row.RailKey, Confirming: row.Settled, FromRail: true}
	switch rapid.SampledFrom([]string{"succeeded", "refused", "timedOut", "release", "unknown"}).Draw(t, "answer") {
	case "succeeded":
		result.Outcome, l.debited[row.Index] = models.OutcomeSucceeded, true
	case "refused", "timedOut": // an honest rail has one truth about a key
		if l.debited[row.Index] {
			result.Outcome = models.OutcomeSucceeded
		} else {
			result.Outcome = models.OutcomeTimedOut
		}
	case "release":
		if l.debited[row.Index] {
			t.Skip("an honest rail does not say so")
		}
		result.Release = true
	}
	if _, err := l.store.FinishRows(t.Context(), chunk, []models.RowResult{result}, chunk.Open); err != nil {
		t.Fatal(err)
	}
}

func (l *batchLife) park(t *rapid.T) {
	if err := l.store.ParkChunk(t.Context(), l.task); err != nil {
		t.Fatal(err)
	}
}

func (l *batchLife) cancel(t *rapid.T) {
	if _, _, err := l.store.CancelBatch(t.Context(), l.site.ID, l.reference); err != nil &&
		!errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
}

func (l *batchLife) check(t *rapid.T) {
	batch, rows, err := l.store.GetBatch(t.Context(), l.site.ID, l.reference)
	if errors.Is(err, models.ErrNotFound) {
		return // its retention is over
	}
	if err != nil {
		t.Fatal(err)
	}
	var counts models.BatchCounts
	var amount models.Amount
	for _, r := range rows {
		l.checkRow(t, r)
		switch {
		case r.State == models.RowPending:
			counts.Pending++
		case r.State == models.RowInProgress:
			counts.InProgress++
		case r.Outcome == models.OutcomeSucceeded:
			counts.Settled, counts.Succeeded, amount = counts.Settled+1, counts.Succeeded+1, amount+r.Amount
		default:
			counts.Settled, counts.Failed = counts.Settled+1, counts.Failed+1
		}
	}
	if batch.Counts != counts || batch.SucceededAmount != amount {
		t.Fatalf("batch %+v, its rows %+v with %d succeeded", batch, counts, amount)
	}
	if (batch.State == models.BatchSettled) != (counts.Settled == len(rows)) {
		t.Fatalf("batch %s with %+v", batch.State, counts)
	}
}

func (l *batchLife) checkRow(t *rapid.T, r models.BatchRow) {
	was, seen := l.before[r.Index]
	if seen && was.State != r.State && !was.State.CanBecome(r.State) {
		t.Fatalf("row %d went from %s to %s", r.Index, was.State, r.State)
	}
	if was.Outcome != "" && was.Outcome != r.Outcome {
		t.Fatalf("row %d changed its outcome from %s to %s", r.Index, was.Outcome, r.Outcome)
	}
	if (r.Outcome == models.OutcomeSucceeded || r.CorrectedOutcome == models.OutcomeSucceeded) != l.debited[r.Index] {
		t.Fatalf("row %d: %+v, debited: %t", r.Index, r, l.debited[r.Index])
	}
	l.before[r.Index] = r
}
