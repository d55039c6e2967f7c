package main

import (
	"fmt"

	"github.com/go-analyze/charts"
)

// moment is the state of the autoscaled workers at one second of a run of loadgen autoscale.
type moment struct {
	Second    float64 `json:"second"`           // since the start of the run
	Backlog   float64 `json:"backlog"`          // rows that are not settled
	OldestDue float64 `json:"oldestDueSeconds"` // age of the oldest due, undispatched debit task
	Desired   float64 `json:"desired"`          // workers that the autoscaler wants
	Running   float64 `json:"running"`          // workers that run
}

// secondLabels is the number of labels on the time axis.
const secondLabels = 10

// timelinePanels returns three charts over the time of a run: the backlog, the workers, and the age
// of the oldest due task of the debits queue.
func timelinePanels(line []moment) []charts.LineChartOption {
	values := func(of func(moment) float64) []float64 {
		all := make([]float64, len(line))
		for i, m := range line {
			all[i] = of(m)
		}
		return all
	}
	seconds := make([]string, len(line))
	for i, m := range line {
		seconds[i] = fmt.Sprintf("%.0f", m.Second)
	}
	panels := []charts.LineChartOption{
		panel("Rows that are not settled", []string{"backlog"}, values(func(m moment) float64 { return m.Backlog })),
		panel("Workers", []string{"desired", "running"},
			values(func(m moment) float64 { return m.Desired }), values(func(m moment) float64 { return m.Running })),
		panel("Age of the oldest due task that is not dispatched, seconds", []string{"age"},
			values(func(m moment) float64 { return m.OldestDue })),
	}
	for i := range panels {
		panels[i].XAxis.Labels, panels[i].XAxis.LabelCount, panels[i].XAxis.Title = seconds, secondLabels, "seconds"
		panels[i].Symbol.Shape, panels[i].LineStrokeWidth = charts.SymbolNone, 1.5
	}
	return panels
}
