package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"
)

// timelineInterval is the time between two consecutive moments of a timeline.
const timelineInterval = time.Second

// timeline is the course of a run of the scenario autoscale.
type timeline []moment

// moment is the state of the workers and of their backlog at one second of a run. Second and
// OldestDue are in seconds.
type moment struct {
	Second    float64 `json:"second"`           // since the beginning of the run
	Wave      int     `json:"wave"`             // number of the current wave, from 1
	Backlog   int     `json:"backlog"`          // rows that are not settled
	OldestDue float64 `json:"oldestDueSeconds"` // age of the oldest due, undispatched debit task
	Desired   int     `json:"desired"`          // workers that the autoscaler wants
	Running   int     `json:"running"`          // workers that are not terminated
	Rate      float64 `json:"rate"`             // rows settled a second since the moment before
}

// of returns the moments of a wave, from its submission until that of the next wave.
func (l timeline) of(wave int) (part timeline) {
	for _, m := range l {
		if m.Wave == wave {
			part = append(part, m)
		}
	}
	return part
}

// reversals returns how often the number of desired workers turns from rising to falling, or back.
func (l timeline) reversals() (n int) {
	direction := 0
	for i := 1; i < len(l); i++ {
		change := l[i].Desired - l[i-1].Desired
		if change*direction < 0 {
			n++
		}
		if change != 0 {
			direction = change
		}
	}
	return n
}

// highest returns the moment with the most desired workers, the first one of several.
func (l timeline) highest() (highest moment) {
	for _, m := range l {
		if m.Desired > highest.Desired {
			highest = m
		}
	}
	return highest
}

// oldest returns the highest age of the oldest due task, and the largest jump of that age, both in
// seconds. A jump is the rise from one moment to the next, less the time between them. It shows
// that a dispatched task has become due again.
func (l timeline) oldest() (peak, jump float64) {
	for i, m := range l {
		peak = max(peak, m.OldestDue)
		if i > 0 {
			jump = max(jump, m.OldestDue-l[i-1].OldestDue-(m.Second-l[i-1].Second))
		}
	}
	return peak, jump
}

// workerSeconds returns the running time of all workers together, in seconds. It counts from the
// first moment to the last one before all rows are settled.
func (l timeline) workerSeconds() (sum float64) {
	for i := 1; i < len(l) && l[i].Backlog > 0; i++ {
		sum += float64(l[i].Running) * (l[i].Second - l[i-1].Second)
	}
	return sum
}

// autoscaleReport collects the results of the runs.
type autoscaleReport struct {
	*autoscale
	timelines []timeline
	reversals *series
	waves     []*waveSeries
}

// waveSeries holds the results of all runs for one of the two waves; newAutoscaleReport names them.
// slowness is the time until all rows are settled, divided by an ideal time. That is the time of
// MaxReplicas workers that run throughout, bounded only by the latency of the rail.
type waveSeries struct {
	drained, reached, highest, oldest, rate, used *series
	slowness, jump                                float64 // the largest of all runs
}

func (w *waveSeries) all() []*series {
	return []*series{w.drained, w.reached, w.highest, w.oldest, w.rate, w.used}
}

func newAutoscaleReport(a *autoscale) *autoscaleReport {
	r := &autoscaleReport{
		autoscale: a, reversals: &series{Name: "changes of direction of the desired replicas", Unit: "times"},
	}
	for i := range 2 {
		named := func(text, unit string) *series {
			return &series{Name: fmt.Sprintf("wave %d: %s", i+1, text), Unit: unit}
		}
		r.waves = append(r.waves, &waveSeries{
			drained: named("from the submission until all rows are settled", "s"),
			reached: named("from the submission until the most workers are desired", "s"),
			highest: named("most desired workers", "workers"),
			oldest:  named("age of the oldest due task at its peak", "s"),
			rate:    named("settled while rows are open", "rows/s"),
			used:    named("time of workers while rows are open", "s"),
		})
	}
	return r
}

// add adds the results of a run: its timeline, and its waves in their order.
func (r *autoscaleReport) add(line timeline, waves []autoscaleWave) {
	r.timelines = append(r.timelines, line)
	r.reversals.add(float64(line.reversals()))
	perWorker := float64(r.inFlight) / r.latency.Seconds()
	for i, w := range waves {
		part, to := line.of(i+1), r.waves[i]
		to.drained.add(w.drained.Seconds())
		to.highest.add(float64(part.highest().Desired))
		to.rate.add(float64(w.rows) / w.drained.Seconds())
		to.used.add(part.workerSeconds())
		if len(part) > 0 {
			to.reached.add(part.highest().Second - part[0].Second)
		}
		peak, jump := part.oldest()
		to.oldest.add(peak)
		to.jump = max(to.jump, jump)
		ideal := float64(w.rows) / (float64(r.scaling.MaxReplicas) * perWorker)
		to.slowness = max(to.slowness, w.drained.Seconds()/ideal)
	}
}

// maxJump is the largest allowed jump of the oldest age (see timeline.oldest), in seconds. It
// covers the time that passes between reading an age and reading the clock.
const maxJump = 2

// print prints the timeline of the first run and the results as a table, or all as JSON.
func (r *autoscaleReport) print() error {
	all := []*series{r.reversals}
	ratios := []ratio{{Name: "changes of direction of the desired replicas", Value: r.reversals.max(), Target: -3}}
	for i, w := range r.waves {
		all = append(all, w.all()...)
		ratios = append(ratios,
			ratio{
				Name:  fmt.Sprintf("wave %d: until settled ÷ with %d workers throughout", i+1, r.scaling.MaxReplicas),
				Value: w.slowness, Target: -1.5,
			},
			ratio{
				Name:  fmt.Sprintf("wave %d: jump of the oldest age", i+1),
				Value: w.jump, Target: -maxJump, Unit: "s",
			})
	}
	if r.json {
		return json.NewEncoder(r.out).Encode(map[string]any{"series": all, "ratios": ratios, "timelines": r.timelines})
	}
	if err := r.printTimeline(r.timelines[0]); err != nil {
		return err
	}
	return r.report(all, ratios)
}

// printTimeline prints the moments at which the number of desired or running workers changes. In
// between, it prints one moment every ten seconds.
func (r *autoscaleReport) printTimeline(line timeline) error {
	fmt.Fprintf(r.out, "The autoscaler's clock runs %g times as fast as that of the table.\n\n", r.speed)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "second\twave\tbacklog\toldest due, s\tdesired\trunning\trows/s\t")
	last, shown := moment{}, -10.0
	for _, m := range line {
		if m.Desired != last.Desired || m.Running != last.Running || m.Second-shown > 9.5 {
			shown = m.Second
			fmt.Fprintf(w, "%.0f\t%d\t%d\t%.1f\t%d\t%d\t%.0f\t\n",
				m.Second, m.Wave, m.Backlog, m.OldestDue, m.Desired, m.Running, m.Rate)
		}
		last = m
	}
	fmt.Fprintln(w)
	return w.Flush()
}
