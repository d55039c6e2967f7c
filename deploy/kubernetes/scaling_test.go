package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

// The deployed manifest is read as it is written, with the defaults of Kubernetes for scaling up.
func TestWorkerScaling(t *testing.T) {
	t.Parallel()
	got, err := WorkerScaling()
	if err != nil {
		t.Fatal(err)
	}
	want := Scaling{
		MinReplicas: 2, MaxReplicas: 8, PollingInterval: 15 * time.Second,
		Fallback: Fallback{FailureThreshold: 4, Replicas: 4},
		Triggers: []Trigger{
			{"debits", `max(svc_tasks_due{queue="debits"})`, 100},
			{"debits-late", `max(svc_tasks_oldest_due_seconds{queue="debits"})`, 60},
			{"waited-for", `max(svc_tasks_oldest_due_seconds{queue=~"checkout|webhooks"})`, 5},
		},
		Up: Rules{Stabilization: 20 * time.Second, SelectPolicy: "Max", Policies: []Policy{
			{"Pods", 4, 15 * time.Second}, {"Percent", 100, 15 * time.Second},
		}},
		Down: Rules{
			Stabilization: 5 * time.Minute, SelectPolicy: "Max", Policies: []Policy{{"Pods", 1, time.Minute}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployed (-want +got):\n%s", diff)
	}
}

// The count of waiting tasks stops early, but not before it asks for all workers.
func TestWaitingTasksAskForAllWorkers(t *testing.T) {
	t.Parallel()
	scaling, err := WorkerScaling()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, trigger := range scaling.Triggers {
		if !strings.Contains(trigger.Query, "svc_tasks_due") {
			continue
		}
		found = true
		if asked := models.MaxWaitingCounted / trigger.Threshold; asked < float64(scaling.MaxReplicas) {
			t.Errorf("%d waiting tasks ask for %.1f of %d workers", models.MaxWaitingCounted, asked,
				scaling.MaxReplicas)
		}
	}
	if !found {
		t.Error("no trigger counts due tasks")
	}
}

const scaled = `
kind: Deployment
spec: {replicas: 3}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: worker}
spec:
  scaleTargetRef: {name: worker}
  minReplicaCount: 1
  maxReplicaCount: 4
  pollingInterval: 10
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp:
          stabilizationWindowSeconds: 0
          selectPolicy: Min
          policies: [{type: Percent, value: 50, periodSeconds: 30}]
        scaleDown: {stabilizationWindowSeconds: 60}
  triggers:
    - {type: prometheus, name: a, metadata: {query: sum(x), threshold: "2.5", ignoreNullValues: "false"}}
`

func TestParseScaling(t *testing.T) {
	t.Parallel()
	got, err := parseScaling([]byte(scaled))
	if err != nil {
		t.Fatal(err)
	}
	want := Scaling{
		MinReplicas: 1, MaxReplicas: 4, PollingInterval: 10 * time.Second, Triggers: []Trigger{{"a", "sum(x)", 2.5}},
		Up:   Rules{SelectPolicy: "Min", Policies: []Policy{{"Percent", 50, 30 * time.Second}}},
		Down: Rules{time.Minute, "Max", []Policy{{"Percent", 100, 15 * time.Second}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, change := range map[string][2]string{
		"field that scales otherwise": {"pollingInterval: 10", "pollingInterval: 10\n  idleReplicaCount: 0"},
		"another trigger":             {"type: prometheus", "type: cpu"},
		"another target":              {"name: a,", "name: a, metricType: Value,"},
		"nothing for a missing value": {`, ignoreNullValues: "false"`, ""},
		"no threshold":                {`"2.5"`, `"0"`},
		"no polling":                  {"pollingInterval: 10", "pollingInterval: 0"},
		"none at least":               {"minReplicaCount: 1", "minReplicaCount: 0"},
		"unknown selection":           {"selectPolicy: Min", "selectPolicy: Least"},
		"unknown policy":              {"Percent", "Share"},
		"no ScaledObject":             {"ScaledObject", "Scaled"},
	} {
		text := strings.Replace(scaled, change[0], change[1], 1)
		if text == scaled {
			t.Fatalf("%s: nothing changed", name)
		}
		if s, err := parseScaling([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if _, err := parseScaling([]byte(scaled + "\n---" + scaled[strings.Index(scaled, "---")+3:])); err == nil {
		t.Error("two ScaledObjects were read")
	}
}
