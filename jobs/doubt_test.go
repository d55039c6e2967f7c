package jobs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
)

// In an outage of the rail the log says what it says, and of which key, but not a thousand times.
func TestDoubtsAreLogged(t *testing.T) {
	b := newBilling(t)
	var log bytes.Buffer
	b.job.Log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	b.job.Now = func() time.Time { return now }
	b.rail.Otherwise(railtest.Unavailable)
	b.submit("ada", "bob", "cyd")
	b.run()
	if n := strings.Count(log.String(), "no final answer"); n != 1 {
		t.Errorf("%d lines about three rows at the same time, want 1:\n%s", n, log.String())
	}
	for _, want := range []string{"key=r1_", "call=debit", "status=unavailable"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}

	var d doubts
	for _, step := range []struct {
		later  time.Duration
		status rail.Status
		told   bool
	}{
		{0, rail.Succeeded, false}, {0, rail.NotFound, false}, {0, rail.Unknown, true}, {doubtEvery - 1, rail.Unknown, false},
		{doubtEvery, rail.Refused, false}, {doubtEvery, rail.Unavailable, true},
	} {
		log.Reset()
		d.note(t.Context(), b.job.Log, now.Add(step.later), "k", callLookup, rail.Result{Status: step.status, Detail: "HTTP 500"})
		if told := strings.Contains(log.String(), "HTTP 500"); told != step.told {
			t.Errorf("%s after %s: told %v", step.status, step.later, told)
		}
	}
}
