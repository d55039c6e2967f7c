package rail_test

import (
	"fmt"
	"maps"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
)

// The test debits through a gateway with many faults, and resolves unknown results as the port
// intends, until every key is final. The reported results must be those of the rail behind.
func TestResultsThroughAFaultyGatewayAreTrue(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	behind.Script("refused", railtest.Unavailable, railtest.Refuse(rail.LimitExceeded))
	g := gateway(t, behind)
	often := rail.Fault{Probability: 0.1}
	err := g.SetFaults(rail.Faults{
		Seed: 1, Delay: often, LoseRequest: often, Unavailable: often, Hang: often, LoseAnswer: often, CutAnswer: often,
		Garbage: often, InternalFail: often, DelayMillis: 1, HangMillis: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := client(t, g.URL, nil)

	const n = 300
	final := make(map[string]rail.Result)
	var open []rail.Debit
	for i := range n {
		d := newDebit(fmt.Sprint("k", i))
		if i%3 == 0 {
			d.AgreementID = "refused"
		}
		open = append(open, d)
	}
	for round := 0; len(open) > 0; round++ {
		open = callOnce(t, h, behind, open, round, final)
	}
	reported := make(map[string]models.Amount)
	for key, r := range final {
		if r.Status == rail.Succeeded {
			reported[key] = 100
		}
	}
	if moved := behind.Amounts(); !maps.Equal(moved, reported) || len(behind.Moved()) != len(reported) {
		t.Errorf("the rail moved %v, the gateway reported %v", moved, reported)
	}
	if len(final) != n || len(reported) == 0 || len(reported) == n {
		t.Errorf("%d keys are final, %d of them debited", len(final), len(reported))
	}
}

// callOnce debits, looks up or cancels the open debits, and returns those that are still open.
func callOnce(
	t *testing.T, h, behind rail.Rail, open []rail.Debit, round int, final map[string]rail.Result,
) []rail.Debit {
	ctx := t.Context()
	keys := make([]string, len(open))
	for i, d := range open {
		keys[i] = d.Key
	}
	before := railtest.Lookup(ctx, t, behind, keys...)
	var results []rail.Result
	switch round % 4 {
	case 0, 2:
		results = railtest.Debit(ctx, t, h, open...)
	case 1:
		results = railtest.Lookup(ctx, t, h, keys...)
	default:
		results = railtest.Cancel(ctx, t, h, keys...)
	}
	truth := railtest.Lookup(ctx, t, behind, keys...)
	var still []rail.Debit
	for i, r := range results {
		wrong := r.Status.Final() && (r.Status != truth[i].Status || r.Reason != truth[i].Reason)
		arrived := before[i].Status == rail.NotFound && truth[i].Status != rail.NotFound
		if wrong || r.Status == rail.Unavailable && arrived {
			t.Errorf("round %d, %s: reported %v, the truth is %v", round, keys[i], r, truth[i])
		}
		if r.Status.Final() {
			final[keys[i]] = r
		} else {
			still = append(still, open[i])
		}
	}
	return still
}
