package main

import (
	"math"
	"slices"
	"time"

	"partnerbilling/deploy/kubernetes"
)

// hpa simulates a HorizontalPodAutoscaler that KEDA feeds with external metrics. It decides as
// Kubernetes 1.34 and KEDA 2.18 do for AverageValue targets. The caller starts and stops the
// replicas.
type hpa struct {
	kubernetes.Scaling
	replicas int // current

	failures        map[string]int // failed readings in a row, by trigger
	recommendations []replicasAt   // numbers proposed so far, before any bound
	added, removed  []replicasAt   // changes of the number so far, as positive numbers
}

// replicasAt is a number of replicas, recorded at a time.
type replicasAt struct {
	at time.Time
	n  int
}

// reading is the answer to a trigger's query. ok is false if the query has no value.
type reading struct {
	value float64
	ok    bool
}

// hpaTolerance is the relative deviation from the target within which the replicas stay unchanged.
const hpaTolerance = 0.1

// newHPA returns an autoscaler whose workload has the minimum number of replicas.
func newHPA(s kubernetes.Scaling, now time.Time) *hpa {
	return &hpa{
		Scaling: s, replicas: s.MinReplicas, failures: map[string]int{},
		recommendations: []replicasAt{{now, s.MinReplicas}},
	}
}

// poll decides by the readings, one for each trigger in the order of Triggers. It returns the new
// number of replicas.
func (h *hpa) poll(now time.Time, readings []reading) int {
	proposed, ok := h.propose(readings)
	if !ok {
		return h.replicas
	}
	desired := h.limit(now, h.stabilize(now, proposed))
	switch {
	case desired > h.replicas:
		h.added = append(h.added, replicasAt{now, desired - h.replicas})
	case desired < h.replicas:
		h.removed = append(h.removed, replicasAt{now, h.replicas - desired})
	}
	h.replicas = desired
	return desired
}

// propose returns the largest number of replicas that a trigger asks for, before any bound. It
// returns false if the replicas stay: no trigger has a value, or one has none and the others ask
// for fewer replicas.
func (h *hpa) propose(readings []reading) (proposed int, ok bool) {
	valid := 0
	for i, t := range h.Triggers {
		value, ok := h.value(t, readings[i])
		if !ok {
			continue
		}
		valid++
		n := h.replicas
		ratio := value / (t.Threshold * float64(h.replicas))
		if ratio < 1-hpaTolerance || ratio > 1+hpaTolerance {
			n = int(min(math.Ceil(value/t.Threshold), math.MaxInt32))
		}
		proposed = max(proposed, n)
	}
	return proposed, valid == len(h.Triggers) || valid > 0 && proposed >= h.replicas
}

// value returns the value that KEDA reports for a trigger: the reading or, after enough failures in
// a row, the value that asks for the fallback's number of replicas.
func (h *hpa) value(t kubernetes.Trigger, r reading) (float64, bool) {
	if r.ok {
		h.failures[t.Name] = 0
		return r.value, true
	}
	h.failures[t.Name]++
	if h.Fallback.FailureThreshold == 0 || h.failures[t.Name] <= h.Fallback.FailureThreshold {
		return 0, false
	}
	return t.Threshold * float64(h.Fallback.Replicas), true
}

// stabilize bounds the proposed number by the earlier ones within the stabilisation windows. The
// replicas grow at most to the smallest number of the upward window. They shrink at most to the
// largest number of the downward window.
func (h *hpa) stabilize(now time.Time, proposed int) int {
	least, most := proposed, proposed
	for _, r := range h.recommendations {
		if r.at.After(now.Add(-h.Up.Stabilization)) {
			least = min(least, r.n)
		}
		if r.at.After(now.Add(-h.Down.Stabilization)) {
			most = max(most, r.n)
		}
	}
	h.recommendations = append(h.recommendations, replicasAt{now, proposed})
	return min(max(h.replicas, least), most)
}

// limit bounds the desired number of replicas by the policies, and by MinReplicas and MaxReplicas.
func (h *hpa) limit(now time.Time, desired int) int {
	switch {
	case desired > h.replicas:
		return min(desired, h.MaxReplicas, max(h.replicas, h.upLimit(now)))
	case desired < h.replicas:
		return max(desired, h.MinReplicas, min(h.replicas, h.downLimit(now)))
	}
	return desired
}

// upLimit returns the largest number of replicas that the upward policies allow.
func (h *hpa) upLimit(now time.Time) int {
	return h.allowed(now, h.Up, 1, func(began float64, p kubernetes.Policy) float64 {
		if p.Type == "Pods" {
			return began + float64(p.Value)
		}
		return math.Ceil(began * (1 + float64(p.Value)/100))
	})
}

// downLimit returns the smallest number of replicas that the downward policies allow.
func (h *hpa) downLimit(now time.Time) int {
	return h.allowed(now, h.Down, -1, func(began float64, p kubernetes.Policy) float64 {
		if p.Type == "Pods" {
			return began - float64(p.Value)
		}
		return math.Floor(began * (1 - float64(p.Value)/100))
	})
}

// allowed returns the number of replicas that the rules allow in a direction: 1 is upward, -1
// downward. apply applies a policy to the number of replicas at the beginning of the policy's
// period. Of several policies, the one with the largest change counts. With SelectPolicy Min, it is
// the one with the smallest change.
func (h *hpa) allowed(
	now time.Time, rules kubernetes.Rules, direction int, apply func(float64, kubernetes.Policy) float64,
) int {
	if rules.SelectPolicy == "Disabled" || len(rules.Policies) == 0 {
		return h.replicas
	}
	changes := make([]int, len(rules.Policies))
	for i, p := range rules.Policies {
		began := h.replicas - changed(h.added, now.Add(-p.Period)) + changed(h.removed, now.Add(-p.Period))
		changes[i] = direction * (int(apply(float64(began), p)) - h.replicas)
	}
	if rules.SelectPolicy == "Min" {
		return h.replicas + direction*slices.Min(changes)
	}
	return h.replicas + direction*slices.Max(changes)
}

// changed returns the sum of the changes after the time since.
func changed(changes []replicasAt, since time.Time) (n int) {
	for _, c := range changes {
		if c.at.After(since) {
			n += c.n
		}
	}
	return n
}
