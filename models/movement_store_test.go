package models_test

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres/explain"
)

// anyMovements generates ledger entries of rows and payments around noon, many at one instant.
func anyMovements(r *rapid.T) []models.Movement {
	movements := make([]models.Movement, rapid.IntRange(0, 14).Draw(r, "movements"))
	for i := range movements {
		m := &movements[i]
		*m = models.Movement{
			RecordedAt: noon + models.Millis(rapid.Int64Range(0, 3).Draw(r, "recordedAt")),
			Amount:     models.Amount(rapid.Int64Range(1, int64(models.MaxAmount)).Draw(r, "amount")), Currency: "AUD",
		}
		if id := uuid.New(); rapid.Bool().Draw(r, "is a payment") {
			m.PaymentIntentID, m.OrderID = models.PaymentIntentID(id), rapid.SampledFrom([]string{"", "order"}).
				Draw(r, "order")
			m.RailKey = models.PaymentRailKey(m.PaymentIntentID)
		} else {
			m.RailKey = "r1_" + hex.EncodeToString(id[:]) + hex.EncodeToString(id[:])
			m.BatchReference, m.RowReference, m.CustomerReference = "batch", fmt.Sprint("row ", i), "customer"
		}
	}
	return movements
}

func insertMovements(t testing.TB, store *models.Store, site models.SiteID, movements []models.Movement) {
	t.Helper()
	for _, m := range movements {
		_, err := store.DB().ExecContext(t.Context(), `
			INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference,
				row_reference, customer_reference,
				payment_intent_id, order_id)
			VALUES (?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, ''), nullif(?::uuid,
				'00000000-0000-0000-0000-000000000000'), nullif(?, ''))`,
			m.RailKey, site, m.RecordedAt, int64(m.Amount), m.Currency, m.BatchReference, m.RowReference,
			m.CustomerReference,
			m.PaymentIntentID, m.OrderID)
		must(t, err)
	}
}

// naiveMovements is the reference implementation of the list.
func naiveMovements(movements []models.Movement, q *models.MovementQuery) []models.Movement {
	out := []models.Movement{}
	for _, m := range movements {
		if (q.From == nil || m.RecordedAt >= *q.From) && (q.To == nil || m.RecordedAt <= *q.To) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b models.Movement) int {
		return cmp.Or(cmp.Compare(b.RecordedAt, a.RecordedAt), cmp.Compare(b.RailKey, a.RailKey))
	})
	return out
}

func totalOf(movements []models.Movement) (total models.Amount) {
	for _, m := range movements {
		total += m.Amount
	}
	return total
}

func TestListMovementsAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	rapid.Check(t, func(r *rapid.T) {
		site := modelstest.Site(t, store)
		movements := anyMovements(r)
		insertMovements(t, store, site.ID, movements)
		bound := func(label string) *models.Millis {
			if !rapid.Bool().Draw(r, label+" given") {
				return nil
			}
			at := rapid.SampledFrom([]models.Millis{-1 << 63, -1, noon - 1, noon, noon + 1, noon + 2,
				noon + 3, noon + 4,
				1<<63 - 1}).Draw(r, label)
			return &at
		}
		q := models.MovementQuery{
			SiteID: site.ID, Limit: rapid.IntRange(1, 5).Draw(r,
				"limit"), Direction: models.Forward, From: bound("from"), To: bound("to"),
		}
		want := naiveMovements(movements, &q)
		checkMovementWalk(t, r, store, q, want)
		all, err := store.MovementsAfter(t.Context(), site.ID, q.From, q.To, models.MovementPosition{})
		must(r, err)
		if diff := gocmp.Diff(want, append([]models.Movement{}, all...)); diff != "" {
			r.Fatalf("in one part: %s", diff)
		}
		if len(want) > 0 {
			m := want[len(want)/2]
			rest, err := store.MovementsAfter(t.Context(), site.ID, q.From, q.To,
				models.MovementPosition{At: m.RecordedAt, Key: m.RailKey})
			must(r, err)
			if diff := gocmp.Diff(want[len(want)/2+1:], append([]models.Movement{}, rest...)); diff != "" {
				r.Fatalf("behind the middle: %s", diff)
			}
		}
	})
}

// checkMovementWalk reads every page forward, then every page backward. Every page has the totals
// of the whole range.
func checkMovementWalk(t testing.TB, r *rapid.T, store *models.Store, q models.MovementQuery, want []models.Movement) {
	read := func(start, end int) models.MovementPage {
		page, err := store.ListMovements(t.Context(), q)
		must(r, err)
		if diff := gocmp.Diff(want[start:end], page.Items); diff != "" {
			r.Fatalf("%s from %d: %s", q.Direction, start, diff)
		}
		if page.Now != noon || page.Total != int64(len(want)) || page.TotalAmount != totalOf(want) ||
			(page.Prev != nil) != (start > 0) || (page.Next != nil) != (end < len(want)) {
			r.Fatalf("%s from %d of %d: %+v", q.Direction, start, len(want), page)
		}
		return page
	}
	start := 0
	page := read(0, min(q.Limit, len(want)))
	for page.Next != nil {
		start += q.Limit
		q.At = *page.Next
		page = read(start, min(start+q.Limit, len(want)))
	}
	for q.Direction = models.Backward; page.Prev != nil; {
		q.At = *page.Prev
		end := start
		start = max(end-q.Limit, 0)
		page = read(start, end)
	}
}

// After random results of rows and payments, the movements equal the ledger, and the ledger equals
// the reported results.
func TestMovementsEqualTheLedger(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	rapid.Check(t, func(r *rapid.T) {
		modelstest.SetClock(t, store, noon)
		site := modelstest.Site(t, store)
		var succeeded models.Amount
		for b := range rapid.IntRange(0, 3).Draw(r, "batches") {
			customers := make([]string, rapid.IntRange(1, 4).Draw(r, "rows"))
			done := modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint("batch ", b), customers...))
			chunk := claim(t, store, done.Tasks[0])
			for i := range customers {
				outcome := rapid.SampledFrom(models.RowOutcomes).Draw(r, "outcome")
				finish(t, store, chunk, models.RowResult{Index: i, Outcome: outcome, FromRail: true})
				modelstest.AdvanceClock(t, store, time.Duration(rapid.IntRange(0, 2).Draw(r, "ms"))*time.Millisecond)
				if late := rapid.Bool().Draw(r, "late truth"); late {
					finish(t, store, chunk, models.RowResult{Index: i, Outcome: models.OutcomeSucceeded,
						FromRail: true})
				}
			}
			_, rows, err := store.GetBatch(t.Context(), site.ID, fmt.Sprint("batch ", b))
			must(r, err)
			for _, row := range rows {
				if cmp.Or(row.CorrectedOutcome, row.Outcome) == models.OutcomeSucceeded {
					succeeded += row.Amount
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(r, "payments") {
			intent := modelstest.Intent(t, store, site.ID, models.Amount(rapid.Int64Range(1, 9).Draw(r, "amount")))
			started := modelstest.Pay(t, store, intent, modelstest.Payer(t, store, models.BehaviourPays))
			claimed, err := store.ClaimTransaction(t.Context(), started.Task, models.NewLeaseToken())
			must(r, err)
			status := rapid.SampledFrom([]models.TransactionStatus{models.TransactionSettled,
				models.TransactionDeclined}).Draw(r, "status")
			_, err = store.FinishTransaction(t.Context(), claimed,
				models.TransactionResult{Status: status, FromRail: true})
			must(r, err)
			if status == models.TransactionSettled {
				succeeded += intent.Amount
			}
		}
		var ledger models.Amount
		var entries int64
		must(r, store.DB().NewRaw("SELECT coalesce(sum(amount), 0), count(*) FROM ledger_entries WHERE site_id = ?",
			site.ID).Scan(t.Context(), &ledger, &entries))
		var walked []models.Movement
		names := map[models.MovementID]bool{}
		q := models.MovementQuery{SiteID: site.ID, Limit: 3, Direction: models.Forward}
		for at := (&models.MovementPosition{}); at != nil; {
			q.At = *at
			page, err := store.ListMovements(t.Context(), q)
			must(r, err)
			if page.Total != entries || page.TotalAmount != ledger {
				r.Fatalf("totals %d, %d; the ledger has %d, %d", page.Total, page.TotalAmount, entries, ledger)
			}
			walked, at = append(walked, page.Items...), page.Next
		}
		for i := range walked {
			names[walked[i].ID()] = true
		}
		if totalOf(walked) != ledger || int64(len(walked)) != entries || len(names) != len(walked) ||
			ledger != succeeded {
			r.Fatalf("walked %d of %d movements, %d names, %d of %d; rows and payments say %d",
				len(walked), entries, len(names), totalOf(walked), ledger, succeeded)
		}
	})
}

func TestMovementIDs(t *testing.T) {
	t.Parallel()
	m := models.Movement{RailKey: "r1_" + strings.Repeat("0", 64), RecordedAt: 1_795_820_359_105}
	first := m.ID()
	if again := m.ID(); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	id := uuid.UUID(first)
	if seconds, nanos := id.Time().UnixTime(); id.Version() != 7 || id.Variant() != uuid.RFC4122 ||
		seconds*1000+nanos/1e6 != int64(m.RecordedAt) {
		t.Errorf("%s is of version %d, variant %s, time %d", id, id.Version(), id.Variant(), seconds)
	}
	if text := first.String(); text != "mov_01a21f3c-0dc1-"+text[18:] {
		t.Errorf("text %s", text)
	}
	other := models.Movement{RailKey: "r1_" + strings.Repeat("0", 63) + "1", RecordedAt: m.RecordedAt}
	if other.ID() == first {
		t.Error("two movements of one instant have one name")
	}
}

func TestListMovementsRefusesBadQueries(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	for _, limit := range []int{-1, 0, models.MaxMovements + 1} {
		if _, err := store.ListMovements(t.Context(), models.MovementQuery{Limit: limit}); err == nil {
			t.Errorf("limit %d was taken", limit)
		}
	}
}

// The totals of 100,000 movements are read from the index alone, and a page from its stretch of it.
func TestListMovementsReadsTheIndex(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	const entries, most = 100_000, 2000 // of about 3,500 blocks of entries
	_, err := store.DB().ExecContext(t.Context(), `
		INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
			customer_reference)
		SELECT 'r1_' || encode(sha256(int4send(i)), 'hex'), ?, ? - i, 1, 'AUD', 'batch', 'row', 'customer'
			FROM generate_series(1, ?) AS i`,
		site.ID, noon, entries)
	must(t, err)
	modelstest.Vacuum(t, store, "ledger_entries")
	from, to := noon-entries*8/10, noon-entries*7/10
	for _, q := range []models.MovementQuery{{}, {From: &from}, {To: &to}, {From: &from, To: &to}} {
		q.SiteID, q.Limit = site.ID, 50
		for _, q.Direction = range []models.Direction{models.Forward, models.Backward} {
			for _, q.At.At = range []models.Millis{0, noon - entries*3/4} {
				list, args := models.MovementStatement(q)
				plan, err := explain.Run(t.Context(), store.DB().DB, list, args)
				must(t, err)
				bound := most
				if q.From != nil && q.To != nil { // a tenth of the range
					bound = most / 5
				}
				if tables := sequential(plan); len(tables) > 0 || plan.Blocks() > bound {
					t.Errorf("%+v: reads %d blocks, all of %q\n%s", q, plan.Blocks(), tables, plan.JSON)
				}
			}
		}
	}
}
