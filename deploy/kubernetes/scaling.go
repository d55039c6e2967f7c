// Package kubernetes holds the manifests of a production deployment. [WorkerScaling] and [PreStop]
// read from them how the workers scale and how the API ends.
package kubernetes

import (
	"bytes"
	_ "embed" // the manifest
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
)

//go:embed worker.yaml
var workerManifest []byte

// Scaling describes how KEDA and its HorizontalPodAutoscaler scale a Deployment. Up and Down hold
// the defaults of Kubernetes where the manifest sets nothing.
type Scaling struct {
	MinReplicas, MaxReplicas int
	PollingInterval          time.Duration // between two queries of a trigger
	Fallback                 Fallback
	Triggers                 []Trigger // the trigger that asks for the most replicas decides
	Up, Down                 Rules
}

// Fallback sets the number of replicas once more than FailureThreshold queries have failed in a
// row. The zero value means no fallback.
type Fallback struct {
	FailureThreshold int `yaml:"failureThreshold"`
	Replicas         int
}

// Trigger is a Prometheus query. Threshold is the part of the query's value that one replica
// handles (AverageValue).
type Trigger struct {
	Name, Query string
	Threshold   float64
}

// Rules bound a change of the number of replicas in one direction.
type Rules struct {
	// Stabilization delays a change. The number of replicas rises to the lowest recommendation of
	// this past time, or falls to the highest.
	Stabilization time.Duration
	// SelectPolicy says which policy applies: Max, the one that allows the largest change; Min, the
	// smallest; Disabled, no change at all.
	SelectPolicy string
	Policies     []Policy
}

// Policy bounds the replicas that are added or removed within a period.
type Policy struct {
	Type   string // the unit of Value: Pods, or Percent of the replicas
	Value  int
	Period time.Duration
}

// scaledObject is the part of a ScaledObject that Scaling covers. Any other field is an error,
// since it might change how the workers scale.
type scaledObject struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
		MinReplicaCount int                   `yaml:"minReplicaCount"`
		MaxReplicaCount int                   `yaml:"maxReplicaCount"`
		PollingInterval int                   `yaml:"pollingInterval"`
		Fallback        Fallback
		Advanced        struct {
			HPA struct {
				Behavior struct {
					ScaleUp   rules `yaml:"scaleUp"`
					ScaleDown rules `yaml:"scaleDown"`
				}
			} `yaml:"horizontalPodAutoscalerConfig"`
		}
		Triggers []struct {
			Type, Name string
			MetricType string `yaml:"metricType"`
			Metadata   struct {
				ServerAddress    string `yaml:"serverAddress"`
				Query, Threshold string
				IgnoreNullValues string `yaml:"ignoreNullValues"`
			}
		}
	}
}

// rules are Rules as a manifest writes them.
type rules struct {
	Stabilization *int   `yaml:"stabilizationWindowSeconds"`
	SelectPolicy  string `yaml:"selectPolicy"`
	Policies      []struct {
		Type          string
		Value         int
		PeriodSeconds int `yaml:"periodSeconds"`
	}
}

// defaultUp and defaultDown are the rules of Kubernetes, for what a manifest does not set.
var (
	defaultUp = Rules{SelectPolicy: "Max", Policies: []Policy{
		{Type: "Pods", Value: 4, Period: 15 * time.Second}, {Type: "Percent", Value: 100, Period: 15 * time.Second},
	}}
	defaultDown = Rules{Stabilization: 5 * time.Minute, SelectPolicy: "Max", Policies: []Policy{
		{Type: "Percent", Value: 100, Period: 15 * time.Second},
	}}
)

// withDefaults returns the manifest's rules, with the defaults for what the manifest does not set.
func (r rules) withDefaults(defaults Rules) Rules {
	all := defaults
	if r.Stabilization != nil {
		all.Stabilization = time.Duration(*r.Stabilization) * time.Second
	}
	if r.SelectPolicy != "" {
		all.SelectPolicy = r.SelectPolicy
	}
	if r.Policies != nil {
		all.Policies = nil
		for _, p := range r.Policies {
			all.Policies = append(all.Policies,
				Policy{Type: p.Type, Value: p.Value, Period: time.Duration(p.PeriodSeconds) * time.Second})
		}
	}
	return all
}

// WorkerScaling returns how the workers of worker.yaml scale. It returns an error if the manifest
// has a field or a value that Scaling does not cover.
func WorkerScaling() (Scaling, error) { return parseScaling(workerManifest) }

// parseScaling returns the scaling of a manifest's ScaledObject. A manifest without one, or with
// several, is an error.
func parseScaling(manifest []byte) (s Scaling, err error) {
	text, err := document(manifest, "ScaledObject")
	if err != nil {
		return s, err
	}
	var object scaledObject
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&object); err != nil {
		return s, err
	}
	if s, err = object.scaling(); err != nil {
		err = fmt.Errorf("ScaledObject %s: %w", object.Metadata.Name, err)
	}
	return s, err
}

// document returns the only document of a kind in a manifest.
func document(manifest []byte, kind string) (text []byte, err error) {
	documents, found := yaml.NewDecoder(bytes.NewReader(manifest)), 0
	for {
		var document map[string]any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if document["kind"] != kind {
			continue
		}
		found++
		if text, err = yaml.Marshal(document); err != nil {
			return nil, err
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("the manifest has %d documents of the kind %s", found, kind)
	}
	return text, nil
}

func (o scaledObject) scaling() (Scaling, error) {
	behavior := o.Spec.Advanced.HPA.Behavior
	s := Scaling{
		MinReplicas: o.Spec.MinReplicaCount, MaxReplicas: o.Spec.MaxReplicaCount,
		PollingInterval: time.Duration(o.Spec.PollingInterval) * time.Second, Fallback: o.Spec.Fallback,
		Up: behavior.ScaleUp.withDefaults(defaultUp), Down: behavior.ScaleDown.withDefaults(defaultDown),
	}
	if s.MinReplicas < 1 || s.MaxReplicas < s.MinReplicas || s.PollingInterval <= 0 || len(o.Spec.Triggers) == 0 {
		return s, errors.New("it needs a number of replicas from 1 on, a polling interval and a trigger")
	}
	for _, t := range o.Spec.Triggers {
		threshold, err := strconv.ParseFloat(t.Metadata.Threshold, 64)
		if err != nil || threshold <= 0 || math.IsInf(threshold, 1) {
			return s, fmt.Errorf("trigger %s: threshold %q", t.Name, t.Metadata.Threshold)
		}
		if t.Type != "prometheus" || t.MetricType != "" && t.MetricType != "AverageValue" ||
			t.Metadata.IgnoreNullValues != "false" {
			return s, fmt.Errorf("trigger %s is not an AverageValue of Prometheus that fails without a value", t.Name)
		}
		s.Triggers = append(s.Triggers, Trigger{Name: t.Name, Query: t.Metadata.Query, Threshold: threshold})
	}
	for _, r := range []Rules{s.Up, s.Down} {
		if r.SelectPolicy != "Max" && r.SelectPolicy != "Min" && r.SelectPolicy != "Disabled" {
			return s, fmt.Errorf("unknown selectPolicy %q", r.SelectPolicy)
		}
		for _, p := range r.Policies {
			if p.Type != "Pods" && p.Type != "Percent" || p.Value <= 0 || p.Period <= 0 {
				return s, fmt.Errorf("policy %+v", p)
			}
		}
	}
	return s, nil
}
