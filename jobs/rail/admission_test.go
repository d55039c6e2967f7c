package rail_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
)

// exhausted is a limiter that admits nothing, and records its calls.
type exhausted struct {
	organisations []models.OrganisationID // of each call
	largest       int                     // number of requests in a call
}

func (l *exhausted) Take(_ context.Context, org models.OrganisationID, n int) int {
	l.organisations, l.largest = append(l.organisations, org), max(l.largest, n)
	return 0
}

// Only Admit waits for the limiter. The calls begin at once, so that checks between Admit and the
// call are still true.
func TestOnlyAdmitWaitsForTheLimiter(t *testing.T) {
	t.Parallel()
	limiter, behind := &exhausted{}, railtest.NewScripted()
	h := client(t, gateway(t, behind).URL, func(c *rail.HTTPConfig) { c.Limiter = limiter })
	org := models.OrganisationID{1}
	n := h.Admit(t.Context(), org, 5)
	if n != 0 || len(limiter.organisations) != 1 || limiter.organisations[0] != org || limiter.largest != 5 {
		t.Errorf("%d of 5 are admitted; the limiter was called for %v, %d at once",
			n, limiter.organisations, limiter.largest)
	}
	var answers [3]rail.Result
	h.Debit(t.Context(), []rail.Debit{newDebit("k")}, func(_ int, r rail.Result) { answers[0] = r })
	h.Lookup(t.Context(), []string{"k"}, func(_ int, r rail.Result) { answers[1] = r })
	h.Cancel(t.Context(), []string{"k"}, func(_ int, r rail.Result) { answers[2] = r })
	for _, r := range answers {
		wantStatus(t, "a call", r, rail.Succeeded)
	}
	if len(limiter.organisations) != 1 {
		t.Errorf("the limiter was called for %v", limiter.organisations)
	}
}

// A server waits for the admission of each request to its rail. Without admission in time it does
// nothing, and its answer says so.
func TestServerWaitsForAdmission(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	start := func(workTimeout time.Duration) *rail.HTTP {
		s, err := rail.NewServer(rail.ServerConfig{
			Rail: behind, Keys: []rail.SigningKey{signingKey}, Log: quiet, WorkTimeout: workTimeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		listener := httptest.NewServer(s)
		t.Cleanup(listener.Close)
		return client(t, listener.URL, nil)
	}
	h := start(200 * time.Millisecond)
	d := newDebit("k")
	d.OrganisationID = models.OrganisationID{1}
	behind.LimitAdmission()
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, d)[0], rail.Unavailable)
	wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Unknown)
	wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], rail.Unknown)
	if calls := behind.Calls("k"); calls != (railtest.Calls{}) {
		t.Errorf("calls %+v without admission", calls)
	}
	h = start(5 * time.Minute)
	behind.Allow(3)
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, d)[0], rail.Succeeded)
	wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Succeeded)
	wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], rail.Succeeded)
	debits, others := behind.Admitted(d.OrganisationID), behind.Admitted(models.OrganisationID{})
	if debits != 1 || others != 2 {
		t.Errorf("%d admissions for the debit, %d for the other calls", debits, others)
	}
}
