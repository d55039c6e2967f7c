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

// In an outage of the rail the log has key, call and status of an answer, once per interval.
func TestAnswersThatAreNotFinalAreLogged(t *testing.T) {
	b := newBilling(t)
	var log bytes.Buffer
	b.job.Log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	b.job.Now = func() time.Time { return now }
	b.rail.SetDefault(railtest.Unavailable)
	b.submit("ada", "bob", "cyd")
	b.run()
	if n := strings.Count(log.String(), "no final answer"); n != 1 {
		t.Errorf("%d lines about three rows at once, want 1:\n%s", n, log.String())
	}
	for _, want := range []string{"key=r1_", "call=debit", "status=unavailable"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}

	var l railLog
	for _, step := range []struct {
		later  time.Duration
		status rail.Status
		logged bool
	}{
		{0, rail.Succeeded, false}, {0, rail.NotFound, false}, {0, rail.Unknown, true},
		{railLogInterval - 1, rail.Unknown, false},
		{railLogInterval, rail.Refused, false}, {railLogInterval, rail.Unavailable, true},
	} {
		log.Reset()
		result := rail.Result{Status: step.status, Detail: "HTTP 500"}
		l.answer(t.Context(), b.job.Log, now.Add(step.later), "k", callLookup, result)
		if logged := strings.Contains(log.String(), "HTTP 500"); logged != step.logged {
			t.Errorf("%s after %s: logged %v", step.status, step.later, logged)
		}
	}
}
