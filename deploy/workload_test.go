package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"partnerbilling/api/operator"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// workload is a process of a manifest.
type workload struct {
	name, kind string
	args       []string
	variables  map[string]string // values from Secrets are "secret"
	grace      time.Duration     // from the request to end until SIGKILL
	pause      time.Duration     // of grace, before SIGTERM
	pod        *podSpec          // nil for compose
}

type podSpec struct {
	EnableServiceLinks            *bool `yaml:"enableServiceLinks"`
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []container
}

type container struct {
	Args    []string
	EnvFrom []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name      string
		Value     string
		ValueFrom struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources struct {
		Requests, Limits map[string]string
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

type kustomization struct {
	Resources          []string
	ConfigMapGenerator []struct {
		Name     string
		Literals []string
	} `yaml:"configMapGenerator"`
}

// kubernetes returns the workloads of the Kubernetes base.
func kubernetes(t *testing.T) []workload {
	t.Helper()
	base := readYAML[kustomization](t, "kubernetes/kustomization.yaml")
	config := map[string]string{}
	for _, literal := range base.ConfigMapGenerator[0].Literals {
		name, value, _ := strings.Cut(literal, "=")
		config[name] = value
	}
	var all []workload
	for _, file := range base.Resources {
		documents := yaml.NewDecoder(strings.NewReader(read(t, filepath.Join("kubernetes", file))))
		for {
			var d struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template struct{ Spec podSpec } }
			}
			err := documents.Decode(&d)
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if pod := &d.Spec.Template.Spec; len(pod.Containers) == 1 {
				all = append(all, pod.workload(d.Kind, d.Metadata.Name, config))
			}
		}
	}
	return all
}

func (p *podSpec) workload(kind, name string, config map[string]string) workload {
	c := p.Containers[0]
	w := workload{name: name, kind: kind, args: c.Args, variables: map[string]string{}, pod: p}
	for range c.EnvFrom {
		for name, value := range config {
			w.variables[name] = value
		}
	}
	for _, e := range c.Env {
		if w.variables[e.Name] = e.Value; e.Value == "" {
			w.variables[e.Name] = "secret"
		}
	}
	w.grace = time.Duration(p.TerminationGracePeriodSeconds) * time.Second
	w.pause = time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	return w
}

type composeService struct {
	Image, User     string
	Command         []string
	Environment     map[string]string
	StopGracePeriod string `yaml:"stop_grace_period"`
}

// compose returns the services of compose.yaml that run svc.
func compose(t *testing.T) []workload {
	t.Helper()
	var all []workload
	for name, s := range readYAML[struct{ Services map[string]composeService }](t, "compose.yaml").Services {
		if s.Image != "svc" {
			continue
		}
		grace, err := time.ParseDuration(s.StopGracePeriod)
		must(t, err)
		all = append(all, workload{name: name, kind: "compose", args: s.Command, variables: s.Environment,
			grace: grace})
	}
	return all
}

// workloads returns all workloads, and fails the test if they are not the expected ones.
func workloads(t *testing.T) []workload {
	t.Helper()
	all := append(kubernetes(t), compose(t)...)
	var names []string
	for _, w := range all {
		names = append(names, w.kind+" "+w.name)
	}
	slices.Sort(names)
	want := []string{
		"Deployment api", "Deployment dashboard", "Deployment worker", "Job migrate",
		"compose api", "compose dashboard", "compose migrate", "compose worker",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("workloads (-want +got):\n%s", diff)
	}
	return all
}

// environment is what workloads need in tests: databases and secrets.
type environment struct{ dsn, redis, masterKeyFile, operatorsFile string }

func newEnvironment(t *testing.T) environment {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{}) // durable: production refuses others
	must(t, err)
	t.Cleanup(func() { must(t, servers.Stop(context.Background())) })
	dir := t.TempDir()
	e := environment{
		servers.DatabaseURL, servers.RedisURL, filepath.Join(dir, "master-key"), filepath.Join(dir, "operators"),
	}
	store, err := models.Open(postgres.Config{DSN: e.dsn})
	must(t, err)
	modelstest.Migrate(t, store)
	must(t, store.Close())
	line, err := operator.Hash("jane", "correct horse battery", operator.RoleAct)
	must(t, errors.Join(err, os.WriteFile(e.operatorsFile, []byte(line), 0o600)))
	must(t, os.WriteFile(e.masterKeyFile, []byte(seal.GenerateMasterKey()+"\n"), 0o600))
	return e
}

// start runs a workload with the variables of its manifest. It returns the URL of the workload, and
// that of its probes and metrics. The environment's own values replace addresses and secrets.
func (e environment) start(t *testing.T, w workload) (url, ops string) {
	t.Helper()
	variables := e.variables(w)
	if w.kind == "Job" || w.name == "migrate" {
		output(t, variables, w.args...)
		return "", ""
	}
	listen := func(name string) string {
		variables[name] = localtest.FreeAddress(t)
		return "http://" + variables[name]
	}
	url = listen("SVC_LISTEN")
	ops = url
	if variables["SVC_OPS_LISTEN"] != "" {
		ops = listen("SVC_OPS_LISTEN")
	}
	serve(t, variables, w.args...)
	return url, ops
}

func (e environment) variables(w workload) map[string]string {
	replaced := map[string]string{
		"SVC_DATABASE_URL": e.dsn, "SVC_REDIS_URL": e.redis, "SVC_MASTER_KEY_FILE": e.masterKeyFile,
		"SVC_RAIL_KEY": "id:a secret of thirty-two characters", "SVC_OPERATORS_FILE": e.operatorsFile,
	}
	variables := map[string]string{}
	if w.variables["SVC_ENV"] == "production" { // the test's servers have no TLS
		variables["SVC_ALLOW_PLAIN"] = "postgres,redis"
	}
	for name, value := range w.variables {
		variables[name] = value
		if value, ok := replaced[name]; ok {
			variables[name] = value
		}
	}
	return variables
}

// Every workload starts with the variables of its manifest, and answers its probes.
func TestWorkloadsRun(t *testing.T) {
	t.Parallel()
	production, sandbox := newEnvironment(t), newEnvironment(t)
	known := configured(t)
	for _, w := range workloads(t) {
		for name := range w.variables {
			if _, ok := known[name]; strings.HasPrefix(name, "SVC_") && !ok {
				t.Errorf("%s %s: the service has no variable %s", w.kind, w.name, name)
			}
		}
		env := production
		if w.variables["SVC_ENV"] == "sandbox" {
			env = sandbox
		}
		url, ops := env.start(t, w)
		switch {
		case w.name == "migrate":
		case w.name == "dashboard":
			await(t, url+"/ops/queues", http.StatusUnauthorized)
		case w.kind == "compose":
			await(t, ops+"/readyz", http.StatusOK)
		default:
			c := w.pod.Containers[0]
			if c.LivenessProbe.HTTPGet.Path == "" || c.ReadinessProbe.HTTPGet.Path == "" {
				t.Errorf("%s lacks a probe", w.name)
			}
			await(t, ops+c.ReadinessProbe.HTTPGet.Path, http.StatusOK)
			await(t, ops+c.LivenessProbe.HTTPGet.Path, http.StatusOK)
		}
	}
}

// The grace period of every workload covers its pre-stop pause and its shutdown.
func TestGracePeriods(t *testing.T) {
	t.Parallel()
	within, err := time.ParseDuration(configured(t)["SVC_SHUTDOWN_WITHIN"])
	must(t, err)
	// margin lets interrupted work notice its end, and the dispatcher release its claims.
	const margin = 5 * time.Second
	for _, w := range workloads(t) {
		if w.kind == "Job" || w.name == "migrate" {
			continue
		}
		if set := w.variables["SVC_SHUTDOWN_WITHIN"]; set != "" {
			within, err = time.ParseDuration(set)
			must(t, err)
		}
		if needed := w.pause + within + margin; w.grace < needed {
			t.Errorf("%s %s has a grace period of %s and needs %s", w.kind, w.name, w.grace, needed)
		}
	}
}

// Pods run unprivileged. Kubernetes adds no variables that the strict configuration would refuse.
func TestPodsAreConfined(t *testing.T) {
	t.Parallel()
	off := func(b *bool) bool { return b != nil && !*b }
	user := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindStringSubmatch(read(t, "Dockerfile"))
	for _, w := range kubernetes(t) {
		c := w.pod.Containers[0]
		for property, ok := range map[string]bool{
			"no service links":   off(w.pod.EnableServiceLinks),
			"no service account": off(w.pod.AutomountServiceAccountToken),
			"the image's user": w.pod.SecurityContext.RunAsNonRoot && user != nil &&
				fmt.Sprint(w.pod.SecurityContext.RunAsUser) == user[1],
			"no privilege escalation": off(c.SecurityContext.AllowPrivilegeEscalation),
			"a read-only file system": c.SecurityContext.ReadOnlyRootFilesystem,
			"no capabilities":         slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}),
			"requests":                c.Resources.Requests["cpu"] != "" && c.Resources.Requests["memory"] != "",
			"a memory limit":          c.Resources.Limits["memory"] != "",
		} {
			if !ok {
				t.Errorf("%s lacks: %s", w.name, property)
			}
		}
	}
}

// The documented Secret has exactly the keys that the manifests use.
func TestSecretIsDescribed(t *testing.T) {
	t.Parallel()
	text := read(t, "kubernetes/kustomization.yaml")
	var described []string
	for _, m := range regexp.MustCompile(`--from-(?:literal|file)=([a-z-]+)`).FindAllStringSubmatch(text, -1) {
		described = append(described, m[1])
	}
	keyReference := regexp.MustCompile(
		`secretKeyRef: \{name: svc, key: ([a-z-]+)\}|items: \[\{key: ([a-z-]+), path`)
	used := []string{}
	for _, file := range readYAML[kustomization](t, "kubernetes/kustomization.yaml").Resources {
		for _, m := range keyReference.FindAllStringSubmatch(read(t, filepath.Join("kubernetes", file)), -1) {
			used = append(used, m[1]+m[2])
		}
	}
	slices.Sort(described)
	slices.Sort(used)
	if diff := cmp.Diff(described, slices.Compact(used)); diff != "" {
		t.Errorf("keys of the Secret differ (-described +used):\n%s", diff)
	}
}

// The base lists every file of its folder.
func TestKustomizationIsComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("kubernetes/*.yaml")
	must(t, err)
	var names []string
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" {
			names = append(names, name)
		}
	}
	resources := readYAML[kustomization](t, "kubernetes/kustomization.yaml").Resources
	slices.Sort(resources)
	if diff := cmp.Diff(names, resources); diff != "" {
		t.Errorf("files and resources differ (-files +resources):\n%s", diff)
	}
}

// pinnedImage matches an image whose digest pins it: name, tag, digest.
var pinnedImage = regexp.MustCompile(`^(\w+):([\w.]+)@sha256:[0-9a-f]{64}$`)

// Redis is durable and does not evict keys. Both databases have the oldest supported version.
func TestComposeDatabases(t *testing.T) {
	t.Parallel()
	services := readYAML[struct{ Services map[string]composeService }](t, "compose.yaml").Services
	if redis := strings.Join(services["redis"].Command, " "); !strings.Contains(redis,
		"--maxmemory-policy noeviction") ||
		!strings.Contains(redis, "--appendonly yes") {
		t.Errorf("redis runs as %s", redis)
	}
	for name, version := range map[string]string{"postgres": "15", "redis": "7"} {
		image := pinnedImage.FindStringSubmatch(services[name].Image)
		if image == nil || image[1] != name || image[2] != version {
			t.Errorf("%s has the image %s, want version %s with a digest", name, services[name].Image, version)
		}
	}
}

func TestDockerfileUsesGoVersionOfModule(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`(?m)^FROM golang:([\d.]+)@sha256:[0-9a-f]{64} AS build$`)
	image := pinned.FindStringSubmatch(read(t, "Dockerfile"))
	mod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if image == nil || mod == nil || image[1] != mod[1] {
		t.Errorf("Dockerfile and go.mod have the Go versions %q and %q", image, mod)
	}
	if ignored, err := os.ReadFile("../.dockerignore"); err != nil || bytes.Contains(ignored, []byte(".git\n")) {
		t.Errorf(".dockerignore excludes .git, so the binary lacks its commit: %s, %v", ignored, err)
	}
}
