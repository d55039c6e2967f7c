// Command chart draws the results of loadgen scale or loadgen autoscale, the measurements of the
// workers' throughput. It reads the JSON of `loadgen scale --json` or `loadgen autoscale --json`
// from standard input, and writes an SVG to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-analyze/charts"
)

// Sizes in pixels. The heights are those of one panel.
const (
	chartWidth     = 720
	scaleHeight    = 340
	timelineHeight = 230
)

// results is the part of loadgen's JSON that the charts need. Only loadgen autoscale prints
// timelines.
type results struct {
	Series []struct {
		Name   string    `json:"name"`
		Values []float64 `json:"values"` // rows a second, one for each run
	} `json:"series"`
	Ratios []struct {
		Name string `json:"name"` // name of the series, " ÷ ", and the rail's throughput in rows a second
	} `json:"ratios"`
	Timelines [][]moment `json:"timelines"` // one for each run
}

// point is a measured rate, with the number of workers and the latency of the rail.
type point struct {
	workers int
	latency time.Duration
	rate    float64 // median, rows a second
	limit   float64 // the rail's throughput, rows a second
}

// inFlight returns the number of debits that each worker has in flight.
func (p point) inFlight() float64 { return p.limit * p.latency.Seconds() / float64(p.workers) }

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// draw reads results, and draws their first timeline. Without a timeline it draws two panels of
// rates: by number of workers, and by latency.
func draw(in io.Reader, out io.Writer) error {
	var r results
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return err
	}
	if len(r.Timelines) > 0 {
		return drawPanels(out, timelineHeight, timelinePanels(r.Timelines[0]))
	}
	byWorkers, byLatency, err := read(r)
	if err != nil {
		return err
	}
	first, second := byWorkers[0], byLatency[0]
	return drawPanels(out, scaleHeight, []charts.LineChartOption{
		chart(fmt.Sprintf("Rail at %s, %.0f debits in flight per worker", first.latency, first.inFlight()), "workers",
			byWorkers, func(p point) string { return fmt.Sprint(p.workers) }),
		chart(fmt.Sprintf("%d workers, %.0f debits in flight each", second.workers, second.inFlight()),
			"latency of the rail, ms", byLatency, func(p point) string { return fmt.Sprint(p.latency.Milliseconds()) }),
	})
}

// drawPanels draws charts of the same height one below the other.
func drawPanels(out io.Writer, height int, panels []charts.LineChartOption) error {
	page := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: len(panels) * height,
		Theme: charts.GetTheme(charts.ThemeLight),
	})
	for i, panel := range panels {
		painter := page.Child(charts.PainterBoxOption(charts.NewBox(0, i*height, chartWidth, (i+1)*height)))
		if err := painter.LineChart(panel); err != nil {
			return err
		}
	}
	svg, err := page.Bytes()
	if err != nil {
		return err
	}
	_, err = out.Write(svg)
	return err
}

// read returns the points of a result of loadgen scale: the points that vary the number of workers,
// and the points that vary the latency.
func read(r results) (byWorkers, byLatency []point, err error) {
	limits := map[string]float64{}
	for _, ratio := range r.Ratios {
		if name, limit, ok := strings.Cut(ratio.Name, " ÷ "); ok {
			var f float64
			_, err := fmt.Sscan(limit, &f)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", ratio.Name, err)
			}
			limits[name] = f
		}
	}
	for _, s := range r.Series {
		p, err := parse(s.Name)
		if err != nil {
			return nil, nil, err
		}
		p.limit, p.rate = limits[s.Name], median(s.Values)
		if strings.HasPrefix(s.Name, "rail") {
			byLatency = append(byLatency, p)
		} else {
			byWorkers = append(byWorkers, p)
		}
	}
	if len(byWorkers) == 0 || len(byLatency) == 0 {
		return nil, nil, fmt.Errorf("the input is neither of loadgen scale --json nor of loadgen autoscale --json")
	}
	return byWorkers, byLatency, nil
}

// parse returns the workers and the latency of a series with the name "2 workers, rail at 50ms" or
// "rail at 50ms, 2 workers".
func parse(name string) (p point, err error) {
	first, second, _ := strings.Cut(name, ", ")
	if strings.HasPrefix(first, "rail") {
		first, second = second, first
	}
	if _, err := fmt.Sscanf(first, "%d workers", &p.workers); err != nil {
		return p, fmt.Errorf("the series %q is not of loadgen scale: %w", name, err)
	}
	p.latency, err = time.ParseDuration(strings.TrimPrefix(second, "rail at "))
	return p, err
}

// median returns the median of values, the lower one of two. It returns 0 if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// chart returns a line chart of the points' rates and of the rail's throughput. label returns the
// text of a point on the x-axis.
func chart(title, axis string, points []point, label func(point) string) charts.LineChartOption {
	measured, limit := make([]float64, len(points)), make([]float64, len(points))
	labels := make([]string, len(points))
	for i, p := range points {
		measured[i], limit[i], labels[i] = p.rate, p.limit, label(p)
	}
	o := panel(title, []string{"settled", "limit of the rail"}, measured, limit)
	o.XAxis.Labels, o.XAxis.Title = labels, axis
	o.YAxis[0].Title = "rows/s"
	return o
}

// panel returns a line chart with a line for each of names and values. The y-axis begins at zero.
func panel(title string, names []string, values ...[]float64) charts.LineChartOption {
	o := charts.NewLineChartOptionWithData(values)
	o.Padding = charts.NewBoxEqual(16)
	o.Title.Text, o.Title.FontStyle.FontSize = title, 10
	o.Legend.SeriesNames = names
	o.Legend.FontStyle.FontSize = 9
	o.Legend.Offset = charts.OffsetStr{Left: charts.PositionRight}
	o.YAxis[0].Min = new(0.0)
	return o
}
