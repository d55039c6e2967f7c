package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/local/localtest"
)

// transcriptBlock matches a shell block of a document, and the output block that follows it, if
// any.
var transcriptBlock = regexp.MustCompile("(?s)```sh\n(.*?)```(?:\n\n```(?:json|text)\n(.*?)```)?")

// guideLink matches a guide in the index of the guides.
var guideLink = regexp.MustCompile(`(?m)^\| \[([a-z-]+\.md)\]`)

// transcripts returns the documents whose shell blocks run one after another, as paths from the
// repository's root.
func transcripts(t *testing.T) []string {
	t.Helper()
	const guides = "api/docs/guides/"
	documents := []string{"README.md"}
	for _, m := range guideLink.FindAllStringSubmatch(readDocument(t, guides+"README.md"), -1) {
		documents = append(documents, guides+m[1])
	}
	files, err := filepath.Glob("../../" + guides + "*.md")
	if err != nil || len(files) != len(documents) { // both include a README.md
		t.Fatalf("the index of the guides lists %d of %d: %v", len(documents)-1, len(files)-1, err)
	}
	return append(documents, "deploy/OPERATIONS.md")
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The shell blocks of README, guides and operations print what the documents show. The test runs
// them in one shell against a fresh svc dev. It ignores values that differ in each run.
func TestDocumentsAreTrueTranscripts(t *testing.T) {
	d := newDevFolder(t)
	dir := filepath.Dir(d.dir)
	d.env["SVC_DATA_DIR"] = filepath.Join(dir, ".svc")
	d.dir = d.env["SVC_DATA_DIR"]
	delete(d.env, "SVC_RATE_LIMIT") // a guide shows the default
	d.start()
	linkBinaries(t, filepath.Join(d.dir, "bin"))
	const mark = "@@ end of a block @@"
	receiver := localtest.FreeAddress(t)
	script := "set -eu\n"
	var want, where []string
	for _, document := range transcripts(t) {
		text := strings.ReplaceAll(readDocument(t, document), "127.0.0.1:9000", receiver)
		for i, block := range transcriptBlock.FindAllStringSubmatch(text, -1) {
			script += block[1] + fmt.Sprintf("echo; echo '%s'\n", mark)
			want, where = append(want, normalise(block[2])), append(where, fmt.Sprintf("%s, block %d", document, i+1))
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = dir, local.Environ("SVCCTL_CONFIG="+filepath.Join(dir, "profiles.json"))
	out, err := cmd.Output()
	blocks := strings.Split(string(out), mark)
	if err != nil || len(want) < 30 || len(blocks) != len(want)+1 {
		t.Fatalf("%d of %d blocks ran: %v; output of the last block:\n%s",
			len(blocks)-1, len(want), err, blocks[len(blocks)-1])
	}
	for i, w := range want {
		if diff := cmp.Diff(w, normalise(blocks[i])); diff != "" {
			t.Errorf("%s (-document +output):\n%s", where[i], diff)
		}
	}
}

// linkBinaries puts the binaries where make run does.
func linkBinaries(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"svc", "svcctl"} {
		if err := os.Symlink(cmdtest.Build(t, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// volatileValues match values that differ in each run.
var volatileValues = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "TIME"},
	{regexp.MustCompile(`"traceId":"[0-9a-f]{32}"`), `"traceId":"TRACE"`},
	{regexp.MustCompile(`(?i:http)://127\.0\.0\.1:\d+`), "BASE"},
	{regexp.MustCompile(`/P/[A-Z2-7]{16}`), "/P/CODE"},
	{regexp.MustCompile(`/signup/[A-Za-z0-9_-]+`), "/signup/TOKEN"},
	{regexp.MustCompile(`\b(secret +)\S+`), "${1}SECRET"},
	{regexp.MustCompile(`\b([a-z]+)_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "${1}_ID"},
}

func normalise(s string) string {
	for _, e := range volatileValues {
		s = e.pattern.ReplaceAllString(s, e.as)
	}
	return strings.TrimSpace(s)
}

// signatureExample matches the body, secret and signature of the guide's openssl command.
var signatureExample = regexp.MustCompile(
	`(?s)printf '%s' '([^']*)' \|\n\s+openssl dgst -sha256 -hmac '([^']*)' -binary \| base64\n(\S+)\n`)

func TestGuideSignatureIsCorrect(t *testing.T) {
	t.Parallel()
	m := signatureExample.FindStringSubmatch(readDocument(t, "api/docs/guides/webhooks.md"))
	if m == nil {
		t.Fatal("the guide has no example")
	}
	if got := signature(m[2], []byte(m[1])); got != m[3] {
		t.Errorf("the example's signature is %s, the guide shows %s", got, m[3])
	}
}

// directRequirement matches a direct requirement in go.mod.
var directRequirement = regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)

// dependencyLine matches a row of the dependency table.
var dependencyLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$")

// developmentOnly begins the part of DEPENDENCIES.md about tools.
const developmentOnly = "\n## For development only\n"

// The dependency table lists exactly the direct requirements of go.mod.
func TestEveryDependencyIsDocumented(t *testing.T) {
	t.Parallel()
	required := all(directRequirement, readDocument(t, "go.mod"))
	product, _, _ := strings.Cut(readDocument(t, "deploy/DEPENDENCIES.md"), developmentOnly)
	listed := all(dependencyLine, product)
	if diff := cmp.Diff(required, listed); diff != "" {
		t.Errorf("direct requirements differ (-go.mod +DEPENDENCIES.md):\n%s", diff)
	}
}

// all returns the first group of each match, sorted.
func all(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return found
}

// relativeLink matches a link to a file of the repository or to a heading.
var relativeLink = regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]*)?\)`)

// Every relative link of every document leads to an existing file and heading.
func TestDocumentLinksResolve(t *testing.T) {
	t.Parallel()
	links := 0
	for _, document := range documents(t) {
		for _, m := range relativeLink.FindAllStringSubmatch(readDocument(t, document), -1) {
			links++
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: the target of %s does not exist", document, m[0])
				continue
			}
			if m[2] != "" && !slices.Contains(anchors(readDocument(t, target)), m[2]) {
				t.Errorf("%s: %s has no heading %s", document, target, m[2])
			}
		}
	}
	if links < 60 {
		t.Errorf("found %d links", links)
	}
}

// documents returns every document of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	return append(transcripts(t), "api/docs/guides/README.md", "cmd/loadgen/README.md", "cmd/svcctl/README.md",
		"deploy/DEPENDENCIES.md", "deploy/RUNBOOK.md", "jobs/rail/HTTP.md", "api/client/typescript/README.md",
		".github/CHANGELOG.md", ".github/CONTRIBUTING.md",
		".github/SECURITY.md")
}

// Documents and help agree on when a change of a client takes effect.
func TestRevocationDelayIsDocumented(t *testing.T) {
	t.Parallel()
	contract := regexp.MustCompile(`(?i)svc admin client|disabling a client|token ends early|tokens (stop|lose|end)`)
	delay := regexp.MustCompile(`within [a-z0-9]+ (?:second|minute)s?`)
	texts := map[string]string{}
	for _, document := range documents(t) {
		texts[document] = readDocument(t, document)
	}
	for _, args := range [][]string{{"admin", "client", "--help"}, {"admin", "client", "secret", "--help"}} {
		code, stdout, stderr := svc(t, nil, args...)
		if code != 0 {
			t.Fatalf("%v: %s", args, stderr)
		}
		texts[strings.Join(args, " ")] = stdout
	}
	found := map[string]int{}
	for name, text := range texts {
		for line := range strings.Lines(text) {
			if !contract.MatchString(line) {
				continue
			}
			for _, got := range delay.FindAllString(line, -1) {
				found[name]++
				if got != withinRevocationDelay {
					t.Errorf("%s says %q, want %q: %s", name, got, withinRevocationDelay, line)
				}
			}
		}
	}
	if found["admin client --help"] < 2 || found["admin client secret --help"] < 1 || len(found) < 6 {
		t.Errorf("found %v", found)
	}
}

// Every make target in a document exists in the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	targets := all(regexp.MustCompile(`(?m)^([a-z]+):`), readDocument(t, "Makefile"))
	named := 0
	for _, document := range documents(t) {
		for _, target := range all(regexp.MustCompile("(?m)(?:`|^|=\\S+ )make ([a-z]+)"), readDocument(t, document)) {
			named++
			if !slices.Contains(targets, target) {
				t.Errorf("%s: there is no make %s", document, target)
			}
		}
	}
	if named < 10 {
		t.Errorf("found %d make targets", named)
	}
}

// anchors returns the link anchors of a document's headings.
func anchors(text string) []string {
	punctuation := regexp.MustCompile(`[^a-z0-9 -]`)
	var names []string
	for _, heading := range all(regexp.MustCompile(`(?m)^#+ (.*)$`), text) {
		name := punctuation.ReplaceAllString(strings.ToLower(heading), "")
		names = append(names, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
