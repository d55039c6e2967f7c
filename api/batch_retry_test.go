package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

func (b *batching) retry(reference, body string) *apitest.Answer {
	return b.Post(b.batch(reference, "/retry"), body)
}

func TestRetry(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "first", customersFor(len(models.RowOutcomes))...)
	golden(t, "batch-retry-in-progress", b.retry("first", `{"batchReference":"second/2"}`).Expect(409))
	b.finish(t, chunk, outcomes(models.RowOutcomes...)...)
	b.Post(b.batches(""), bodyOf("taken", "ada")).Expect(202)
	<-b.tasks
	golden(t, "batch-retry-conflict", b.retry("first", `{"batchReference":"taken"}`).Expect(409))
	golden(t, "batch-retry-conflict", b.retry("first", `{"batchReference":"first"}`).Expect(409))
	b.advance(t, time.Minute)

	made := b.retry("first", `{"batchReference":"second/2"}`).Expect(202)
	golden(t, "batch-retry", made)
	if tasks := <-b.tasks; len(tasks) != 1 {
		t.Errorf("told of %d tasks", len(tasks))
	}
	if made.Header.Get("Location") != b.batch("second/2", "") || made.Header.Get("Retry-After") != "1" ||
		made.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", made.Header)
	}
	b.advance(t, time.Minute)
	again := b.retry("first", `{ "batchReference" : "second\/2", "unknown": 1 }`).Expect(202)
	golden(t, "batch-retry", again)
	if again.Header.Get("Idempotent-Replayed") != "true" ||
		again.Header.Get("Location") != made.Header.Get("Location") {
		t.Errorf("headers of the repetition %v", again.Header)
	}
	select {
	case <-b.tasks:
		t.Error("a replay was told of as new work")
	default:
	}
	golden(t, "batch-already-retried", b.retry("first", `{"batchReference":"third"}`).Expect(409))
	golden(t, "batch-not-found", b.retry("none", `{"batchReference":"third"}`).Expect(404))
	golden(t, "batch-retried", b.Get(made.Header.Get("Location")).Expect(200))
	golden(t, "batches-retried", b.Get(b.batches("")).Expect(200))
}

func TestRetryFaults(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for body, want := range map[string]string{
		`{}`:                       "batches:missing-field batchReference",
		`{"batchReference":null}`:  "batches:missing-field batchReference",
		`{"batchReference":""}`:    "batches:invalid-field batchReference",
		`{"batchReference":"\n"}`:  "batches:invalid-field batchReference",
		`{"batchReference":".."}`:  "batches:invalid-field batchReference",
		`{"batchreference":"x"}`:   "requests:malformed-json batchReference",
		`{"batchReference":["x"]}`: "batches:invalid-field batchReference",
	} {
		b.retry("none", body).Refused(400, want) // the body is checked before the batch
	}
	b.other.Post(b.batch("none", "/retry"), `{"batchReference":"x"}`).Refused(403, "sites:site-not-accessible siteId")
}

func TestRetryOfNothing(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	chunk := b.submit(t, "b", "ada", "bob", "eve")
	b.finish(t, chunk, outcomes(models.OutcomeSucceeded, models.OutcomeUnconfirmed, models.OutcomeTimedOut)...)
	b.finish(t, chunk, models.RowResult{Index: 2, Outcome: models.OutcomeSucceeded}) // a late outcome corrects the row
	golden(t, "batch-nothing-to-retry", b.retry("b", `{"batchReference":"again"}`).Expect(409))
}

// A submission under a retry's reference conflicts with it, even with the same rows. The answer
// says that the stored batch is a retry, and lists at most MaxDifferences differences.
func TestSubmissionUnderTheReferenceOfARetry(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.finish(t, b.submit(t, "first", "ada", "bob"), outcomes(models.OutcomeTimedOut, models.OutcomeTimedOut)...)
	b.retry("first", `{"batchReference":"second"}`).Expect(202)
	const conflict = "batches:batch-reference-conflict "
	golden(t, "batch-conflict-retry", b.Post(b.batches(""), bodyOf("second", "ada", "bob")).Expect(409))
	b.Post(b.batches(""), bodyOf("second", "ada", "eve")).
		Refused(409, conflict+"batchReference", conflict+"retryOf", conflict+"rows[1].customerReference")
	faults := b.Post(b.batches(""), bodyOf("second", customersFor(50)...)).Expect(409).Faults()
	if len(faults) != 1+api.MaxDifferences {
		t.Errorf("%d faults", len(faults))
	}
}

func TestConcurrentRetries(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.finish(t, b.submit(t, "first", "ada"), outcomes(models.OutcomeTimedOut)...)
	statuses, _ := b.postAtOnce(t, 8, b.batch("first", "/retry"), func(i int) string {
		return fmt.Sprintf(`{"batchReference":"%d"}`, i)
	})
	if diff := cmp.Diff(map[int]int{202: 1, 409: 7}, statuses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list := dataOf[batchPage](b.Get(b.batches(""))); list.TotalItems != 2 {
		t.Errorf("%d batches", list.TotalItems)
	}
}
