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

// writeChart draws the rates over the workers, and below it over the latency, into the scenario's file, if it has one.
func (s *scale) writeChart(byWorkers, byLatency []scalePoint) error {
	if s.chart == "" {
		return nil
	}
	page := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: 2 * panelHeight, Theme: charts.GetTheme(charts.ThemeLight),
	})
	for i, panel := range []struct {
		title, axis string
		points      []scalePoint
	}{
		{fmt.Sprintf("Rail at %s, %d debits under way for each worker", s.latency, s.inFlight), "workers", byWorkers},
		{fmt.Sprintf("%d workers, %d debits under way for each", latencyWorkers, s.inFlight), "latency of the rail, ms", byLatency},
	} {
		place := page.Child(charts.PainterBoxOption(charts.NewBox(0, i*panelHeight, chartWidth, (i+1)*panelHeight)))
		if err := place.LineChart(s.panel(panel.title, panel.axis, panel.points)); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
	}
	svg, err := page.Bytes()
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return os.WriteFile(s.chart, svg, 0o644) //nolint:gosec // a picture to look at
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
	o.Legend.SeriesNames = []string{"settled", "what the rail lets through"}
	o.Legend.FontStyle.FontSize = 9
	o.Legend.Offset = charts.OffsetStr{Left: charts.PositionRight}
	o.XAxis.Labels, o.XAxis.Title = labels, axis
	o.YAxis[0].Title, o.YAxis[0].Min = "rows/s", new(0.0)
	return o
}
