package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/deploy/local"
)

const librariesGuide = "api/docs/guides/libraries.md"

// The Go program of the guide to libraries creates a payment intent. .ci/generators runs the
// program in TypeScript.
func TestGuideGoProgramRuns(t *testing.T) {
	d := newDevFolder(t)
	_, info := d.start()
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readDocument(t, librariesGuide))
	if program == nil {
		t.Fatal("the guide has no program in Go")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	organisation := info.Organisations[0]
	cmd := exec.CommandContext(ctx, "go", "run", file)
	cmd.Dir = "../.."
	cmd.Env = append(local.Environ(), "BASE_URL="+info.BaseURL, "CLIENT_ID="+organisation.ClientID.String(),
		"CLIENT_SECRET="+organisation.ClientSecret, "SITE="+organisation.Sites[0].SiteID.String())
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), "pi_") {
		t.Errorf("%v\n%s", err, output)
	}
}

// goSamples returns the Go samples of the API reference by operation.
func goSamples(t *testing.T) map[string]string {
	t.Helper()
	document, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Paths, Webhooks map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(document, &described); err != nil {
		t.Fatal(err)
	}
	maps.Copy(described.Paths, described.Webhooks)
	samples := make(map[string]string)
	for _, item := range described.Paths {
		for key, raw := range item {
			var operation struct {
				OperationID string
				Samples     []struct{ Lang, Source string } `json:"x-codeSamples"`
			}
			if key == "parameters" {
				continue
			}
			if err := json.Unmarshal(raw, &operation); err != nil {
				t.Fatal(err)
			}
			for _, sample := range operation.Samples {
				if sample.Lang == "Go" {
					samples[operation.OperationID] = sample.Source
				}
			}
		}
	}
	return samples
}

// The Go samples of the API reference compile. .ci/generators compiles those in TypeScript.
func TestReferenceSamplesCompile(t *testing.T) {
	t.Parallel()
	samples := goSamples(t)
	if len(samples) < 10 {
		t.Errorf("the reference has only %d samples in Go", len(samples))
	}
	var program strings.Builder
	program.WriteString("package sample\n\nimport (\n\"context\"\n\"fmt\"\n\"net/http\"\n\"time\"\n" +
		"\"partnerbilling/api/client\"\n)\n\nvar _, _ = http.Handle, time.Second\n")
	for operation, source := range samples {
		const signature = "(ctx context.Context, c *client.Client, site, secret string) error"
		fmt.Fprintf(&program, "\nfunc %s%s {\n%s\nreturn nil\n}\n", operation, signature, source)
	}
	file := filepath.Join(t.TempDir(), "sample.go")
	if err := os.WriteFile(file, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", file)
	cmd.Dir, cmd.Env = "../..", local.Environ()
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, output, program.String())
	}
}

// pinnedPackages returns the direct dependencies of a package.json with their versions.
func pinnedPackages(t *testing.T, file string) map[string]string {
	t.Helper()
	var manifest struct{ Dependencies, DevDependencies map[string]string }
	if err := json.Unmarshal([]byte(readDocument(t, file)), &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Dependencies) > 0 {
		t.Errorf("%s has dependencies at run time: %v", file, manifest.Dependencies)
	}
	return manifest.DevDependencies
}

// goTool matches a tool of a go.mod.
var goTool = regexp.MustCompile(`(?m)^(?:tool |\t)(\S+/cmd/\S+)$`)

// The table of development tools lists exactly those that are pinned, and both package.json pin the
// same releases.
func TestEveryToolIsDocumented(t *testing.T) {
	t.Parallel()
	pinned := pinnedPackages(t, ".ci/openapi/package.json")
	for name, version := range pinnedPackages(t, "api/client/typescript/package.json") {
		if other, ok := pinned[name]; ok && other != version {
			t.Errorf("%s is pinned as %s and as %s", name, version, other)
		}
		pinned[name] = version
	}
	want := slices.Collect(maps.Keys(pinned))
	for _, module := range []string{".ci/tools/go.mod", ".ci/openapi/go.mod"} {
		for _, tool := range all(goTool, readDocument(t, module)) {
			want = append(want, path.Base(tool))
		}
	}
	slices.Sort(want)
	_, tools, _ := strings.Cut(readDocument(t, "deploy/DEPENDENCIES.md"), developmentOnly)
	if diff := cmp.Diff(want, all(dependencyLine, tools)); diff != "" {
		t.Errorf("tools differ (-pinned +DEPENDENCIES.md):\n%s", diff)
	}
}

// The guide names the releases of the generators that are tested.
func TestGuideNamesTestedGenerators(t *testing.T) {
	t.Parallel()
	guide := readDocument(t, librariesGuide)
	tested := pinnedPackages(t, ".ci/openapi/package.json")
	module := readDocument(t, ".ci/openapi/go.mod")
	for tool, pattern := range map[string]string{
		"oapi-codegen": `oapi-codegen/v2 v(\S+)`, "ogen": `ogen-go/ogen v(\S+)`,
	} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(module)
		if m == nil {
			t.Fatalf("%s is not pinned", tool)
		}
		tested[tool] = m[1]
	}
	for _, tool := range []string{
		"openapi-typescript", "openapi-fetch", "@hey-api/openapi-ts", "oapi-codegen", "ogen",
	} {
		row := regexp.MustCompile("(?m)^\\| [^|]+ \\| [^|]*`" + regexp.QuoteMeta(tool) + "`[^|]* \\| ([^|]+) \\|").
			FindStringSubmatch(guide)
		if row == nil || !slices.Contains(strings.Split(row[1], ", "), tested[tool]) {
			t.Errorf("the guide does not name %s %s: %q", tool, tested[tool], row)
		}
	}
}
