package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// promQuery is a query of PromQL in the form that the triggers of the autoscaling use. Its result
// is the sum or the maximum of all samples of a metric whose labels match.
type promQuery struct {
	sum      bool // false: the maximum
	metric   string
	matchers map[string]*regexp.Regexp // by label; a pattern matches the whole value
}

// sample is one value of a metric, read from the text of a scrape.
type sample struct {
	metric string
	labels map[string]string
	value  float64
}

var (
	promAggregation = regexp.MustCompile(`^(max|sum)\(([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\)$`)
	promMatcher     = regexp.MustCompile(`^\s*(\w+)\s*(=~?)\s*"([^"\\]*)"\s*(?:,\s*|$)`)
)

// parsePromQuery parses a query such as max(metric{label="value", label=~"expression"}), or the
// same with sum.
func parsePromQuery(text string) (q promQuery, err error) {
	parts := promAggregation.FindStringSubmatch(text)
	if parts == nil {
		return q, fmt.Errorf("the query %q is neither the maximum nor the sum of a metric", text)
	}
	q = promQuery{sum: parts[1] == "sum", metric: parts[2], matchers: map[string]*regexp.Regexp{}}
	for rest := strings.TrimSpace(parts[3]); rest != ""; {
		m := promMatcher.FindStringSubmatch(rest)
		if m == nil {
			return q, fmt.Errorf("the query %q has matchers other than = and =~ at %q", text, rest)
		}
		rest = rest[len(m[0]):]
		if m[2] == "=" {
			m[3] = regexp.QuoteMeta(m[3])
		}
		if q.matchers[m[1]], err = regexp.Compile("^(?:" + m[3] + ")$"); err != nil {
			return q, err
		}
	}
	return q, nil
}

// inSeconds reports whether the metric is a time in seconds, judging by its name.
func (q promQuery) inSeconds() bool { return strings.HasSuffix(q.metric, "_seconds") }

// eval evaluates the query. It returns false if no sample matches.
func (q promQuery) eval(samples []sample) (result float64, ok bool) {
	for _, s := range samples {
		switch {
		case s.metric != q.metric || !q.matches(s):
		case q.sum:
			result, ok = result+s.value, true
		case !ok || s.value > result:
			result, ok = s.value, true
		}
	}
	return result, ok
}

func (q promQuery) matches(s sample) bool {
	for label, pattern := range q.matchers {
		if !pattern.MatchString(s.labels[label]) {
			return false
		}
	}
	return true
}

// readSamples returns the gauges and counters in the text of a scrape, in no particular order.
func readSamples(text io.Reader) (all []sample, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			s := sample{metric: name, labels: map[string]string{}}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				s.value = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				s.value = m.GetCounter().GetValue()
			default:
				continue
			}
			all = append(all, s)
		}
	}
	return all, nil
}
