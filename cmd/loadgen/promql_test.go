package main

import (
	"strings"
	"testing"

	"partnerbilling/deploy/kubernetes"
)

const scraped = `# TYPE late gauge
late{queue="debits"} 12.5
late{queue="checkout"} 3
late{queue="webhooks"} 4
# TYPE settled_total counter
settled_total{outcome="succeeded"} 7
# TYPE took histogram
took_bucket{le="+Inf"} 2
took_sum 1
took_count 2
`

func TestPromQuery(t *testing.T) {
	t.Parallel()
	samples, err := readSamples(strings.NewReader(scraped))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]reading{
		`max(late{queue="debits"})`:               {12.5, true},
		`max(late{queue=~"checkout|webhooks"})`:   {4, true},
		`sum(late{queue=~"checkout|webhooks"})`:   {7, true},
		`max(late)`:                               {12.5, true},
		`sum(settled_total{outcome="succeeded"})`: {7, true},
		`max(late{queue="debit"})`:                {},
		`max(late{queue="debits", site="a"})`:     {},
		`max(late{queue=~"debit"})`:               {},
		`max(late{queue="debits|checkout"})`:      {},
		`max(late{queue=~"debits|x{1,2}"})`:       {12.5, true},
		`max(late{queue="debits",})`:              {12.5, true},
		`max(late{queue="checkout,webhooks"})`:    {},
		`max(nothing)`:                            {},
	} {
		q, err := parsePromQuery(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if value, ok := q.eval(samples); value != want.value || ok != want.ok {
			t.Errorf("%s = %g, %t, want %+v", text, value, ok, want)
		}
	}
	for _, text := range []string{
		"late", "avg(late)", "max(rate(settled_total[1m]))", `max(late{queue!="debits"})`, `max(late) + 1`,
		`max(late{queue=~"("})`, `max(late{queue="debits" site="a"})`, `max(late{,})`, "",
	} {
		if q, err := parsePromQuery(text); err == nil {
			t.Errorf("%q was read as %+v", text, q)
		}
	}
}

// The deployed queries can be evaluated.
func TestDeployedQueries(t *testing.T) {
	t.Parallel()
	scaling, err := kubernetes.WorkerScaling()
	if err != nil {
		t.Fatal(err)
	}
	for _, trigger := range scaling.Triggers {
		if _, err := parsePromQuery(trigger.Query); err != nil {
			t.Error(err)
		}
	}
}
