package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// While Redis is down, an API and a worker under load log about it at most once a second. A line
// names the dependency and the number of suppressed lines. When Redis is back, the worker logs the
// loss of its data.
func TestRedisOutageLogsOnceASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	f := newFleet(t, modelstest.DSN(t))
	for i := range customers {
		modelstest.Customer(t, f.store, f.site.ID, fmt.Sprint(i), models.BehaviourPays)
	}
	f.startWorker()
	f.awaitServers(queuetest.Client(t, f.redis.URL))
	f.startAPI() // its first count of the fleet finds the worker, so it dispatches
	f.submit(1)
	if _, err := f.api.AwaitBatch(t.Context(), f.site.ID.String(), f.batches[0]); err != nil {
		t.Fatal(err)
	}
	before := map[*process]int{}
	for _, p := range []*process{f.apiProcess, f.workers[0]} {
		before[p] = len(p.stderr.String())
	}
	f.redis.Kill()
	began := time.Now()
	const outage = 5 * time.Second
	submit, ended := time.NewTicker(20*time.Millisecond), time.After(outage)
	defer submit.Stop()
	for i, down := 0, true; down; i++ {
		select {
		case <-submit.C:
			batch := client.Batch{BatchReference: fmt.Sprint("b", i)}
			batch.Rows = []client.Row{{CustomerReference: "0", RowReference: "r", Amount: 1}}
			if _, err := f.api.SubmitBatch(t.Context(), f.site.ID.String(), batch); err != nil {
				t.Fatal(err)
			}
			f.batches = append(f.batches, batch.BatchReference)
		case <-ended:
			down = false
		}
	}
	logged := map[string]string{}
	for p, start := range before {
		logged[p.name] = p.stderr.String()[start:]
	}
	took := time.Since(began)
	f.redis.Start()
	for name, text := range logged {
		lines := strings.Count(text, "\n")
		t.Logf("%s logged %d lines in %s of %d submissions; the last:\n%s", name, lines, took, len(f.batches),
			tail(text[:max(0, len(text)-1)]))
		if most := int(took/time.Second) + 1; lines < 2 || lines > most {
			t.Errorf("%s logged %d lines, want 2 to %d", name, lines, most)
		}
		if !strings.Contains(text, `"outage":"redis"`) || !strings.Contains(text, `"suppressed":`) {
			t.Errorf("%s does not log the number of suppressed lines", name)
		}
	}
	for _, reference := range f.batches {
		if _, err := f.api.AwaitBatch(t.Context(), f.site.ID.String(), reference); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := f.workers[0].stderr.await(t.Context(), "Redis has lost its data"); !ok {
		t.Error("the worker does not log that Redis lost its data")
	}
}

// Probes are logged at level debug only.
func TestProbesAreNotLogged(t *testing.T) {
	t.Parallel()
	f := newFleet(t, modelstest.DSN(t), "SVC_LOG_LEVEL", "INFO")
	f.startAPI()
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/openapi.json"} {
		response, err := http.Get(f.apiURL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	if _, ok := f.apiProcess.stderr.await(t.Context(), `"route":"/openapi.json"`); !ok {
		t.Fatal("no request is logged")
	}
	if n := strings.Count(f.apiProcess.stderr.String(), `"msg":"request"`); n != 1 {
		t.Errorf("%d requests are logged, want 1", n)
	}
}
