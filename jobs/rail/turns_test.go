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

// used is a limiter without a turn left.
type used struct {
	asked []models.OrganisationID
	most  int // that was asked for at once
}

func (l *used) Take(_ context.Context, org models.OrganisationID, n int) int {
	l.asked, l.most = append(l.asked, org), max(l.most, n)
	return 0
}

// Turns are taken before a call, which then begins at once: what is looked at in between is true when the request goes out.
func TestCallsWaitForNoTurn(t *testing.T) {
	t.Parallel()
	limiter, behind := &used{}, railtest.NewScripted()
	h := client(t, gateway(t, behind).URL, func(c *rail.HTTPConfig) { c.Limiter = limiter })
	org := models.OrganisationID{1}
	if n := h.Admit(t.Context(), org, 5); n != 0 || len(limiter.asked) != 1 || limiter.asked[0] != org || limiter.most != 5 {
		t.Errorf("%d of 5 may be made, and the limiter was asked for %v, %d at once", n, limiter.asked, limiter.most)
	}
	var answers [3]rail.Result
	h.Debit(t.Context(), []rail.Debit{order("k")}, func(_ int, r rail.Result) { answers[0] = r })
	h.Lookup(t.Context(), []string{"k"}, func(_ int, r rail.Result) { answers[1] = r })
	h.Cancel(t.Context(), []string{"k"}, func(_ int, r rail.Result) { answers[2] = r })
	for _, r := range answers {
		wantStatus(t, "a call", r, rail.Succeeded)
	}
	if len(limiter.asked) != 1 {
		t.Errorf("the limiter was asked for %v", limiter.asked)
	}
}

// A server takes a turn on the rail behind for each request, and says that nothing was done where there is none in time.
func TestServerTakesTurns(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	s, err := rail.NewServer(rail.ServerConfig{
		Rail: behind, Keys: []rail.SigningKey{signingKey}, Log: quiet, WorkTimeout: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	h := client(t, listener.URL, nil)
	d := order("k")
	d.OrganisationID = models.OrganisationID{1}
	behind.Limit()
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, d)[0], rail.Unavailable)
	wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Unknown)
	wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], rail.Unknown)
	if calls := behind.Calls("k"); calls != (railtest.Calls{}) {
		t.Errorf("calls %+v without a turn", calls)
	}
	behind.Allow(3)
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, d)[0], rail.Succeeded)
	wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Succeeded)
	wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], rail.Succeeded)
	if own, others := behind.Admitted(d.OrganisationID), behind.Admitted(models.OrganisationID{}); own != 1 || others != 2 {
		t.Errorf("%d turns for the debit, %d for the others", own, others)
	}
}
