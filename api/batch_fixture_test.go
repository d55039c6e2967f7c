package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// batching is a billing whose test plays the workers that debit rows.
type batching struct {
	*billing
	tasks   chan []models.TaskID // the tasks of every new batch
	arrived *arrivals
}

func newBatching(t testing.TB) *batching {
	t.Helper()
	return newBatchingOn(t, modelstest.Open(t))
}

// newBatchingOn returns a batching on the given store.
func newBatchingOn(t testing.TB, store *models.Store) *batching {
	t.Helper()
	b := &batching{tasks: make(chan []models.TaskID, 100), arrived: newArrivals()}
	b.billing = newBillingOn(t, store, func(cfg *api.Config) {
		cfg.Notify = func(tasks []models.TaskID) { b.tasks <- tasks }
		cfg.Limiter = b.arrived
	})
	return b
}

// batches returns a path below the Site's batches.
func (b *billing) batches(path string) string {
	return "/billing/sites/" + b.site.String() + "/batches" + path
}

func (b *billing) batch(reference, path string) string {
	return b.batches("/" + url.PathEscape(reference) + path)
}

// bodyOf returns a submission with a row for each customer. Amounts begin at 100 and rise by 1.
func bodyOf(reference string, customers ...string) string {
	var rows []string
	for i, c := range customers {
		rows = append(rows, fmt.Sprintf(`{"customerReference":%q,"rowReference":"row-%d","amount":%d}`, c, i, 100+i))
	}
	return fmt.Sprintf(`{"batchReference":%q,"rows":[%s]}`, reference, strings.Join(rows, ","))
}

// customersFor returns n generated customer references.
func customersFor(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("customer-", i)
	}
	return names
}

// submit submits a new batch and claims the rows of its first chunk.
func (b *batching) submit(t testing.TB, reference string, customers ...string) models.Chunk {
	t.Helper()
	b.Post(b.batches(""), bodyOf(reference, customers...)).Expect(202)
	return b.claim(t)
}

// claim claims the chunk of the newest batch, as a worker would.
func (b *batching) claim(t testing.TB) models.Chunk {
	t.Helper()
	chunk, err := b.store.ClaimChunk(t.Context(), (<-b.tasks)[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	return chunk
}

// finish records the results of rows, as a worker would.
func (b *batching) finish(t testing.TB, chunk models.Chunk, results ...models.RowResult) {
	t.Helper()
	for i := range results {
		results[i].RailKey = chunk.Rows[results[i].Index].RailKey
	}
	if _, err := b.store.FinishRows(t.Context(), chunk, results, chunk.Open); err != nil {
		t.Fatal(err)
	}
}

// outcomes returns the results of rows in order.
func outcomes(list ...models.RowOutcome) []models.RowResult {
	results := make([]models.RowResult, len(list))
	for i, o := range list {
		results[i] = models.RowResult{Index: i, Outcome: o}
	}
	return results
}

// batchData is the data of a batch.
type batchData struct {
	BatchReference, RetryOf, State   string
	SubmittedAt, SettleBy, SettledAt models.Millis
	RowCount                         int
	TotalAmount, SucceededAmount     models.Amount
	Counts                           struct{ Pending, InProgress, Settled, Succeeded, Failed int }
	Rows                             []batchRow
}

type batchRow struct {
	RowReference, CustomerReference, State, Outcome, CorrectedOutcome string
	Amount                                                            models.Amount
	SettledAt, NextAttemptAt                                          models.Millis
	Attempts                                                          int
}

// receipt is the data of a submission.
type receipt struct {
	BatchReference, State string
	RowCount              int
	TotalAmount           models.Amount
	SubmittedAt, SettleBy models.Millis
}

func dataOf[T any](a *apitest.Answer) T {
	var data T
	a.Data(&data)
	return data
}
