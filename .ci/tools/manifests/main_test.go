package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: {}, template: {spec: {containers: [{name: a}]}}}\n"
	for name, c := range map[string]struct{ document, want string }{
		"valid":            {deployment, ""},
		"misspelt":         {strings.Replace(deployment, "selector", "selektor", 1), "selektor"},
		"misspelt, deeper": {strings.Replace(deployment, "{name: a}]", "{name: a, livenessprobe: {}}]", 1), "livenessprobe"},
		"another type":     {strings.Replace(deployment, "selector: {}", "replicas: two", 1), "replicas"},
		"no quantity":      {strings.Replace(deployment, "{name: a}]", "{name: a, resources: {limits: {memory: 1GB}}}]", 1), "quantit"},
		"twice":            {deployment + "kind: Deployment\n", "already"},
		"unknown kind":     {strings.Replace(deployment, "Deployment", "Deploiment", 1), "unknown kind"},
	} {
		err := check([]byte(c.document))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestDeployedManifests(t *testing.T) {
	t.Parallel()
	if n, err := checkFolder("../../../deploy/kubernetes"); err != nil || n < 10 {
		t.Errorf("%d documents: %v", n, err)
	}
}
