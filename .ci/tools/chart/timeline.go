package main

import (
	"fmt"

	"github.com/go-analyze/charts"
)

// moment is the state of the autoscaled workers at a second of the run.
type moment struct {
	Second    float64 `json:"second"`
	Backlog   float64 `json:"backlog"`
	OldestDue float64 `json:"oldestDueSeconds"`
	Desired   float64 `json:"desired"`
	Running   float64 `json:"running"`
}

// secondLabels is the number of labels on an axis of seconds.
const secondLabels = 10

// timelinePanels returns charts of the backlog, the workers and the oldest age over time.
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
