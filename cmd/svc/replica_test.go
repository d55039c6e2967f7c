package main

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// replicaFleet is an API and a dashboard with a replica.
type replicaFleet struct {
	*fleet
	*modelstest.Replicated
	dashboard string
}

func startReplicaFleet(t *testing.T) *replicaFleet {
	t.Helper()
	r := modelstest.OpenReplicated(t)
	f := &replicaFleet{Replicated: r}
	f.fleet = newFleet(t, r.Pair.DatabaseURL(), "SVC_DATABASE_READ_URL", r.ReplicaURL)
	modelstest.Customer(t, r.Store, f.site.ID, "ada", models.BehaviourPays)
	f.startAPI()
	const password = "correct-horse-battery"
	p := startSvc(t, with(f.env, "SVC_LISTEN", "127.0.0.1:0", "SVC_OPS_PASSWORD", password), "dashboard")
	f.dashboard = strings.Replace(after(p.expect("the dashboard is at")), "http://", "http://operator:"+password+"@", 1)
	return f
}

// readAll reads what the replica serves, and checks that it shows a batch that is submitted just
// before. It returns the time of the slowest read.
func (f *replicaFleet) readAll(reference string) (slowest time.Duration) {
	f.Helper()
	_, err := f.api.SubmitBatch(f.Context(), f.site.ID.String(), client.Batch{
		BatchReference: reference, Rows: []client.Row{{CustomerReference: "ada", RowReference: "1", Amount: 7}},
	})
	must(f.T, err)
	for _, read := range []func(){
		func() {
			table, err := f.api.BatchRowsCSV(f.Context(), f.site.ID.String(), reference)
			if err != nil || !strings.Contains(string(table), "ada") {
				f.Errorf("%s: %s, %v", reference, table, err)
			}
		},
		func() {
			if _, err := f.api.MovementsCSV(f.Context(), f.site.ID.String(), client.MovementFilter{}); err != nil {
				f.Errorf("%s: %v", reference, err)
			}
		},
		func() {
			page := f.dashboard + "/batch?site=" + f.site.ID.String() + "&ref=" + reference
			if status, body := get(f.T, page, "", ""); status != http.StatusOK || !strings.Contains(body, "ada") {
				f.Errorf("%s: %d %s", page, status, body)
			}
		},
	} {
		began := time.Now()
		read()
		slowest = max(slowest, time.Since(began))
		if status, body := get(f.T, f.apiURL+"/readyz", "", ""); status != http.StatusOK {
			f.Errorf("%s: not ready: %d %s", reference, status, body)
		}
	}
	return slowest
}

// awaitServed reads until the API has read from the replica once more.
func (f *replicaFleet) awaitServed() {
	f.Helper()
	served := func() string {
		_, metrics := get(f.T, f.apiURL+"/metrics", "", "")
		_, rest, _ := strings.Cut(metrics, "\nsvc_database_replica_reads_total ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	before := served()
	f.await("a read from the replica", func() bool {
		f.readAll(rand.Text())
		return served() != before
	})
}

// awaitMetric waits until the API's metrics have a line.
func (f *replicaFleet) awaitMetric(line string) {
	f.Helper()
	f.await(line, func() bool {
		_, metrics := get(f.T, f.apiURL+"/metrics", "", "")
		return strings.Contains(metrics, "\n"+line)
	})
}

// The replica serves tables and pages of the processes. While it is frozen or dead, the processes
// stay ready, and reads take hardly longer.
func TestReplicaOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	f := startReplicaFleet(t)
	f.awaitServed()
	f.awaitMetric("svc_database_replica_usable 1")
	f.awaitMetric("svc_database_replica_lag_seconds 0")
	f.awaitMetric(`svc_database_replica_fallbacks_total{reason="write"} 0`)

	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"frozen", f.Line.Freeze, func() { f.Line.Thaw(); f.Line.Release() }},
		{
			"killed", f.Pair.Standby().Postgres.KillAll,
			func() { must(t, f.Pair.Standby().Postgres.Start(t.Context())) },
		},
	} {
		fault.begin()
		if took := f.readAll(fault.name); took > 2*time.Second {
			t.Errorf("with the replica %s, a read took %s", fault.name, took)
		}
		f.awaitMetric("svc_database_replica_usable 0")
		f.awaitMetric("svc_database_replica_lag_seconds NaN")
		fault.end()
		f.awaitMetric("svc_database_replica_usable 1")
	}
	f.awaitServed()
}

// The replica may be down when a process starts, but its URL must be one, and lead past poolers.
func TestReplicaConfiguration(t *testing.T) {
	t.Parallel()
	base := []string{"SVC_DATABASE_READ_URL=postgres://standby/svc"}
	if _, err := parseConfig(base); err != nil {
		t.Error(err)
	}
	_, err := parseConfig(append(base, "SVC_DATABASE_POOLER=transaction"))
	if err == nil || !strings.Contains(err.Error(), "SVC_DATABASE_READ_URL needs a direct connection") {
		t.Errorf("with a pooler: %v", err)
	}
	f := newFleet(t, modelstest.DSN(t), "SVC_DATABASE_READ_URL", "postgres://svc@127.0.0.1:1/svc")
	f.startAPI()
	if status, _ := get(t, f.apiURL+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("readiness with a replica that is down: %d", status)
	}
	wrong := with(f.env, "SVC_DATABASE_READ_URL", "postgres://a b:secret/", "SVC_LISTEN", "127.0.0.1:0")
	code, _, stderr := svc(t, wrong, "api")
	if code == 0 || !strings.Contains(stderr, "SVC_DATABASE_READ_URL") || strings.Contains(stderr, "secret/") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
