package main

import (
	"fmt"
	"os"

	"github.com/go-analyze/charts"
)

const (
	chartWidth  = 720
	panelHeight = 340
)

// writeChart writes a chart of the rates by number of workers and, below it, by latency. It does
// nothing without a file name.
func (s *scale) writeChart(byWorkers, byLatency []scalePoint) error {
	if s.chart == "" {
		return nil
	}
	page := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: 2 * panelHeight,
		Theme: charts.GetTheme(charts.ThemeLight),
	})
	for i, panel := range []struct {
		title, axis string
		points      []scalePoint
	}{
		{fmt.Sprintf("Rail at %s, %d debits in flight per worker", s.latency, s.inFlight), "workers", byWorkers},
		{
			fmt.Sprintf("%d workers, %d debits in flight each", latencyWorkers, s.inFlight), "latency of the rail, ms",
			byLatency,
		},
	} {
		painter := page.Child(charts.PainterBoxOption(charts.NewBox(0, i*panelHeight, chartWidth, (i+1)*panelHeight)))
		if err := painter.LineChart(s.panel(panel.title, panel.axis, panel.points)); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
	}
	svg, err := page.Bytes()
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return os.WriteFile(s.chart, svg, 0o644) // charts are public
}

func (s *scale) panel(title, axis string, points []scalePoint) charts.LineChartOption {
	measured, limit := make([]float64, len(points)), make([]float64, len(points))
	labels := make([]string, len(points))
	for i, p := range points {
		measured[i], limit[i], labels[i] = p.rate.median(), s.limit(p), p.label
	}
	o := charts.NewLineChartOptionWithData([][]float64{measured, limit})
	o.Padding = charts.NewBoxEqual(16)
	o.Title.Text, o.Title.FontStyle.FontSize = title, 10
	o.Legend.SeriesNames = []string{"settled", "limit of the rail"}
	o.Legend.FontStyle.FontSize = 9
	o.Legend.Offset = charts.OffsetStr{Left: charts.PositionRight}
	o.XAxis.Labels, o.XAxis.Title = labels, axis
	o.YAxis[0].Title, o.YAxis[0].Min = "rows/s", new(0.0)
	return o
}
