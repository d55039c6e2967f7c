package webtest

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

//go:embed axe.min.js.gz
var axeArchive []byte

//go:embed check.js
var checkScript string

// scripts returns axe-core and check.js as one script.
var scripts = sync.OnceValues(func() (string, error) {
	archive, err := gzip.NewReader(bytes.NewReader(axeArchive))
	if err != nil {
		return "", fmt.Errorf("webtest: axe-core: %w", err)
	}
	axe, err := io.ReadAll(archive)
	if err != nil {
		return "", fmt.Errorf("webtest: axe-core: %w", err)
	}
	return string(axe) + ";\n" + checkScript + ";0", nil
})

// screenshots is the folder for pictures of the checked pages, "" for no pictures.
var screenshots = flag.String("screenshots", "", "write pictures of the checked pages into this folder")

// phoneWidth is the width of a phone's window, in CSS pixels.
const phoneWidth = 390

// looks are the windows and colour schemes in which Check looks at a page. 320 pixels are a window
// of 1280 pixels at 400 % zoom (WCAG 1.4.10), in which the page only has to fit.
var looks = []struct {
	width  int64 // CSS pixels
	scheme string
	rules  string // for audit in check.js
}{
	{phoneWidth, "light", "all"}, {phoneWidth, "dark", "colours"}, {320, "light", "none"},
	{1280, "dark", "colours"}, {1280, "light", "all"},
}

// Check looks at the page that the tab shows, on a phone and a large screen, in light and dark. It
// fails the test for violations of axe-core's rules, and for content wider than the window. It also
// fails the test for errors that the browser has reported. view names the page; Check does not open
// it.
func (tab *Tab) Check(view View) {
	tab.t.Helper()
	tab.inject()
	for _, look := range looks {
		rules := look.rules
		if view.Alike && look.scheme != "light" {
			continue
		}
		if view.Alike && look.width != phoneWidth {
			rules = "none"
		}
		tab.Look(look.width, look.scheme)
		for _, fault := range Ask[[]string](tab, fmt.Sprintf("webtest.audit(%q)", rules)) {
			tab.t.Errorf("%s at %d pixels, %s: %s", view.Name, look.width, look.scheme, fault)
		}
		if *screenshots != "" && look.rules != "none" {
			tab.picture(fmt.Sprintf("%s %d %s", view.Name, look.width, look.scheme))
		}
	}
	for _, reported := range tab.BrowserErrors() {
		tab.t.Errorf("%s: the browser reports: %s", view.Name, reported)
	}
}

// Errorf fails the test with a message, and goes on.
func (tab *Tab) Errorf(format string, args ...any) {
	tab.t.Helper()
	tab.t.Errorf(format, args...)
}

// inject runs the scripts of the kit in the page.
func (tab *Tab) inject() {
	tab.t.Helper()
	text, err := scripts()
	if err != nil {
		tab.t.Fatal(err)
	}
	Ask[int](tab, text)
}

// View is a page in one of its states, as CheckAll opens it.
type View struct {
	Name string // unique in the test; begins the failures
	Path string
	Text string // CheckAll waits until the page shows it; "" for no text
	// Act brings the opened page into its state, such as an opened dialog. nil does nothing.
	Act func(*Tab)
	// Alike says that another view has the same template. Check then skips the dark looks, and
	// applies axe-core's rules only at the width of a phone.
	Alike bool
}

// CheckAll opens and checks each view in a parallel subtest, in a tab that open returns.
func CheckAll(t *testing.T, open func(testing.TB) *Tab, views []View) {
	t.Helper()
	for _, view := range views {
		t.Run(view.Name, func(t *testing.T) {
			t.Parallel()
			tab := open(t)
			tab.Open(view.Path)
			if view.Text != "" {
				tab.Sees(view.Text)
			}
			if view.Act != nil {
				view.Act(tab)
			}
			tab.Check(view)
		})
	}
}

// notInNames matches what the names of picture files leave out.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// picture writes a picture of the whole page into the folder screenshots. what becomes its name.
func (tab *Tab) picture(what string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, stepTimeout)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		tab.t.Fatal(err)
	}
	name := strings.Trim(notInNames.ReplaceAllString(what, "-"), "-") + ".png"
	if err := os.WriteFile(filepath.Join(*screenshots, name), image, 0o600); err != nil {
		tab.t.Fatal(err)
	}
}

// Stop is an element that gets the focus by the Tab key.
type Stop struct {
	Name   string // the element's aria-label, or else the text of it or its label
	Kind   string // its tag, and the type of a field
	Hidden bool   // it does not show that it has the focus
}

// Stops presses Tab until the focus leaves the page, and returns the elements that had the focus.
// It fails the test if one of them does not show its focus, and for 200 elements or more.
func (tab *Tab) Stops() []Stop {
	tab.t.Helper()
	tab.inject()
	Ask[bool](tab, `document.activeElement.blur() || true`)
	var stops []Stop
	for len(stops) < 200 {
		tab.Keys("\t")
		stop := Ask[Stop](tab, `webtest.focused()`)
		if stop.Kind == "body" {
			return stops
		}
		if stop.Hidden {
			tab.t.Errorf("%s: %s %q does not show that it has the focus", tab.Path(), stop.Kind, stop.Name)
		}
		stops = append(stops, stop)
	}
	tab.t.Errorf("%s: the Tab key does not leave the page", tab.Path())
	return stops
}

// TabTo presses Tab until the focused element has the name, or one that begins with the name and a
// space. It fails the test if the focus leaves the page before.
func (tab *Tab) TabTo(name string) {
	tab.t.Helper()
	tab.inject()
	var seen []string
	for range 200 {
		tab.Keys("\t")
		stop := Ask[Stop](tab, `webtest.focused()`)
		if stop.Name == name || strings.HasPrefix(stop.Name, name+" ") {
			return
		}
		seen = append(seen, stop.Name)
		if stop.Kind == "body" && len(seen) > 1 { // the first press may only enter the page
			break
		}
	}
	tab.t.Fatalf("%s: the Tab key does not reach %q: %q", tab.Path(), name, seen)
}
