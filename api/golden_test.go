package api_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/apitest"
)

var update = flag.Bool("update", false, "write the golden files of answers anew")

// varying are the variable parts of answers, with their placeholders in golden files.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"traceId":"[0-9a-f]{32}"`), `"traceId":"TRACE"`},
	{regexp.MustCompile(`/signup/[A-Za-z0-9_-]{48}"`), `/signup/TOKEN"`},
	{regexp.MustCompile(`\?cursor=[A-Za-z0-9_-]{100,}"`), `?cursor=CURSOR"`},
	{regexp.MustCompile(`/P/[A-Z2-7]{16}"`), `/P/CODE"`},
	{regexp.MustCompile(`"data:image/png;base64,[A-Za-z0-9+/=]{300,}"`), `"PNG"`},
	{regexp.MustCompile(`"timestamp":[0-9]{13}`), `"timestamp":NOW`},
	{regexp.MustCompile(`(site|lnk|pi|txn|mov|evt)_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), `${1}_ID`},
}

// golden compares an answer with testdata/<name>.golden.json, byte for byte.
func golden(t *testing.T, name string, answer *apitest.Answer) {
	t.Helper()
	got := answer.Body
	for _, v := range varying {
		got = v.pattern.ReplaceAll(got, []byte(v.with))
	}
	path := filepath.Join("testdata", name+".golden.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("%s:\n%s", name, diff)
	}
}
