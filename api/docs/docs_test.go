package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"partnerbilling/api"
	"partnerbilling/api/docs"
)

func newDocs(t *testing.T) *docs.Docs {
	t.Helper()
	d, err := docs.New(api.DocumentedErrors())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// names returns the names of all guides.
func names(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(os.DirFS("guides"), "*.md")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	var names []string
	for _, file := range files {
		if file != "README.md" {
			names = append(names, strings.TrimSuffix(file, ".md"))
		}
	}
	return names
}

// href matches a link of a page.
var href = regexp.MustCompile(`href="([^"#]*)(?:#([^"]*))?"`)

// Every link between pages leads to a page and a heading that exist.
func TestLinksOfPagesResolve(t *testing.T) {
	t.Parallel()
	d := newDocs(t)
	pages := map[string]string{docs.Path: string(d.Index())}
	for _, name := range names(t) {
		page, ok := d.Guide(name)
		if !ok {
			t.Fatalf("there is no page of the guide %s", name)
		}
		pages[docs.Path+"/guides/"+name] = string(page)
	}
	links := 0
	for from, page := range pages {
		for _, m := range href.FindAllStringSubmatch(page, -1) {
			path, fragment := m[1], m[2]
			switch {
			case path == "":
				path = from
			case !strings.HasPrefix(path, docs.Path) || path == docs.Path+"/reference" ||
				strings.HasPrefix(path, docs.Path+"/assets/"):
				continue
			}
			links++
			target, ok := pages[path]
			if !ok || fragment != "" && !strings.Contains(target, fmt.Sprintf("id=%q", fragment)) {
				t.Errorf("%s links to %s#%s, which does not exist", from, path, fragment)
			}
		}
		if strings.Contains(page, `.md"`) || strings.Contains(page, ".md#") {
			t.Errorf("%s links to a file", from)
		}
	}
	if links < 300 {
		t.Errorf("found %d links", links)
	}
}

// explained matches a code and the status in its explanation.
var explained = regexp.MustCompile("(?m)^### `([a-z:-]+)`\n\n\\*\\*([0-9]{3})\\*\\* \\S")

// The guide to error codes explains exactly the codes of the catalogue.
func TestEveryErrorCodeIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("guides/error-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, m := range explained.FindAllStringSubmatch(string(text), -1) {
		got = append(got, m[2]+" "+m[1])
	}
	page, _ := newDocs(t).Guide("error-codes")
	for _, e := range api.Catalogue() {
		want = append(want, fmt.Sprintf("%d %s", e.Status, e.Code))
		_, fragment, _ := strings.Cut(docs.HelpPath(string(e.Code)), "#")
		if !strings.Contains(string(page), fmt.Sprintf("id=%q", fragment)) {
			t.Errorf("%s: the page has no heading %s", e.Code, fragment)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("explained: %v\ncatalogue: %v", got, want)
	}
}

// The pages load nothing from other hosts, and have no inline scripts or styles.
func TestPagesKeepTheirPolicy(t *testing.T) {
	t.Parallel()
	d := newDocs(t)
	reference, err := d.Reference(true)
	if err != nil {
		t.Fatal(err)
	}
	pages := [][]byte{d.Index(), reference}
	for _, name := range names(t) {
		page, _ := d.Guide(name)
		pages = append(pages, page)
	}
	forbidden := regexp.MustCompile(
		`(?i)<style|\sstyle=|<script>|\son[a-z]+=|(?:src|<link[^>]*href)="(?:[a-z]+:)?//|ZgotmplZ`)
	for i, page := range pages {
		if found := forbidden.Find(page); found != nil {
			t.Errorf("page %d has %s", i, found)
		}
		if i != 1 && strings.Contains(string(page), "<script") {
			t.Errorf("page %d has a script", i)
		}
	}
}
