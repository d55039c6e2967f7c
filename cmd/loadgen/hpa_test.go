package main

import (
	"slices"
	"testing"
	"time"

	"partnerbilling/deploy/kubernetes"
)

// hpaEpoch is the time at which the autoscalers of the tests begin.
var hpaEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns a time of the tests.
func at(seconds int) time.Time { return hpaEpoch.Add(time.Duration(seconds) * time.Second) }

// unbound are rules that follow each recommendation at once.
func unbound() kubernetes.Rules {
	return kubernetes.Rules{
		SelectPolicy: "Max", Policies: []kubernetes.Policy{{Type: "Pods", Value: 1000, Period: time.Second}},
	}
}

// testHPA returns an autoscaler of one trigger, with its smallest number of replicas.
func testHPA(lowest, highest int, threshold float64, up, down kubernetes.Rules) *hpa {
	return newHPA(kubernetes.Scaling{
		MinReplicas: lowest, MaxReplicas: highest, Up: up, Down: down,
		Triggers: []kubernetes.Trigger{{Name: "a", Threshold: threshold}},
	}, at(0))
}

func TestHPAProposal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas  int
		threshold float64
		value     float64
		want      int
	}{
		"ceil(metric / target)":      {2, 30, 67, 3},
		"an exact multiple":          {1, 30, 90, 3},
		"twice the target":           {2, 50, 200, 4}, // 100 for each replica
		"half the target":            {4, 100, 200, 2},
		"nothing":                    {5, 30, 0, 0},
		"0.05 above is tolerated":    {4, 100, 420, 4},
		"0.1 above is tolerated":     {4, 100, 440, 4},
		"more than 0.1 above is not": {4, 100, 441, 5},
		"0.1 below is tolerated":     {10, 100, 900, 10},
		"more than 0.1 below is not": {10, 100, 899, 9},
	} {
		h := testHPA(1, 100, c.threshold, unbound(), unbound())
		h.replicas = c.replicas
		if got, ok := h.propose([]reading{{c.value, true}}); got != c.want || !ok {
			t.Errorf("%s: %d, %t, want %d", name, got, ok, c.want)
		}
	}
}

// Of several metrics the largest proposal counts. Without one of them, the replicas do not shrink.
func TestHPASeveralMetrics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		readings []reading
		want     int
	}{
		"the largest":               {[]reading{{60, true}, {40, true}}, 8},
		"one failed, growth":        {[]reading{{0, false}, {40, true}}, 8},
		"one failed, no shrinking":  {[]reading{{60, true}, {0, false}}, 4},
		"all failed":                {[]reading{{0, false}, {0, false}}, 4},
		"both ask for fewer":        {[]reading{{60, true}, {15, true}}, 3},
		"bounded by the range":      {[]reading{{900, true}, {15, true}}, 10},
		"bounded by the range, low": {[]reading{{0, true}, {0, true}}, 2},
	} {
		h := testHPA(2, 10, 30, unbound(), unbound())
		h.Triggers = append(h.Triggers, kubernetes.Trigger{Name: "b", Threshold: 5})
		h.replicas, h.recommendations = 4, nil
		if got := h.poll(at(10), c.readings); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// KEDA reports what makes the fallback's replicas once more failures follow each other than its
// threshold.
func TestHPAFallback(t *testing.T) {
	t.Parallel()
	h := testHPA(2, 8, 30, unbound(), unbound())
	h.Fallback = kubernetes.Fallback{FailureThreshold: 2, Replicas: 4}
	var got []int
	for i, r := range []reading{{0, false}, {0, false}, {0, true}, {0, false}, {0, false}, {0, false}, {0, true}} {
		got = append(got, h.poll(at(15*i), []reading{r}))
	}
	if want := []int{2, 2, 2, 2, 2, 4, 2}; !slices.Equal(got, want) {
		t.Errorf("replicas %v, want %v", got, want)
	}
}

// poll is a reading of a threshold of 1, and the replicas that it must lead to.
type poll struct {
	second, value, want int
}

func TestHPABehavior(t *testing.T) {
	t.Parallel()
	pods := func(n int, period time.Duration) kubernetes.Policy {
		return kubernetes.Policy{Type: "Pods", Value: n, Period: period}
	}
	percent := func(n int, period time.Duration) kubernetes.Policy {
		return kubernetes.Policy{Type: "Percent", Value: n, Period: period}
	}
	rules := func(window int, selected string, policies ...kubernetes.Policy) kubernetes.Rules {
		return kubernetes.Rules{
			Stabilization: time.Duration(window) * time.Second, SelectPolicy: selected, Policies: policies,
		}
	}
	for name, c := range map[string]struct {
		from     int
		up, down kubernetes.Rules
		polls    []poll
	}{
		// Of 4 pods and 100 %, the default lets the larger change through in each period.
		"default growth": {
			1, rules(0, "Max", pods(4, 15*time.Second), percent(100, 15*time.Second)), unbound(),
			[]poll{{15, 80, 5}, {20, 80, 5}, {30, 80, 10}, {45, 80, 20}, {60, 80, 40}, {75, 80, 80}},
		},
		// The documented example: 10 % of 80 replicas are 8, and 10 % of 72 are 8 when rounded up.
		// Below 40 replicas, 4 pods are more.
		"the larger of 4 pods and 10 % a minute": {
			80, unbound(), rules(0, "Max", pods(4, time.Minute), percent(10, time.Minute)),
			[]poll{
				{60, 1, 72}, {90, 1, 72}, {120, 1, 64}, {180, 1, 57}, {240, 1, 51}, {300, 1, 45}, {360, 1, 40}, {420, 1, 36},
			},
		},
		"the smaller of both": {
			80, unbound(), rules(0, "Min", pods(4, time.Minute), percent(10, time.Minute)),
			[]poll{{60, 1, 76}, {120, 1, 72}},
		},
		"disabled": {5, unbound(), rules(0, "Disabled", pods(4, time.Minute)), []poll{{60, 1, 5}, {900, 1, 5}}},
		// The replicas shrink to the largest recommendation of the window.
		"downward window": {
			6, unbound(), rules(300, "Max", percent(100, 15*time.Second)),
			[]poll{
				{60, 6, 6}, {120, 3, 6}, {240, 4, 6}, {359, 2, 6}, {360, 2, 4}, {539, 2, 4}, {540, 1, 2}, {838, 1, 2}, {839, 1, 1},
			},
		},
		"one pod a minute after the window": {
			5, unbound(), rules(120, "Max", pods(1, time.Minute)),
			[]poll{{15, 5, 5}, {135, 1, 4}, {180, 1, 4}, {195, 1, 3}, {255, 1, 2}, {315, 1, 1}},
		},
		// The replicas grow to the smallest recommendation of the window.
		"upward window": {
			2, rules(60, "Max", pods(100, 15*time.Second)), unbound(),
			[]poll{{15, 9, 2}, {45, 7, 2}, {60, 8, 7}, {105, 8, 8}},
		},
		"a short peak does not pass the upward window": {
			2, rules(60, "Max", pods(100, 15*time.Second)), unbound(),
			[]poll{{30, 2, 2}, {45, 9, 2}, {60, 2, 2}, {75, 2, 2}},
		},
	} {
		h := testHPA(1, 100, 1, c.up, c.down)
		h.replicas, h.recommendations = c.from, []replicasAt{{at(0), c.from}}
		for _, p := range c.polls {
			if got := h.poll(at(p.second), []reading{{float64(p.value), true}}); got != p.want {
				t.Errorf("%s, after %d s: %d replicas, want %d", name, p.second, got, p.want)
			}
		}
	}
}
