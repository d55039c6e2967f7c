// Package webtest is a test kit that opens the service's pages in a real browser. It checks them
// against the rules of axe-core, and returns what the browser reports.
package webtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// stepTimeout bounds each step in a tab, on a busy machine.
const stepTimeout = 2 * time.Minute

// executable returns the path of Chromium. It skips the test if there is none.
func executable(t testing.TB) string {
	t.Helper()
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
		"/Applications/Chromium.app/Contents/MacOS/Chromium",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	fmt.Fprintln(os.Stderr, "SKIPPED: the pages need Chromium; `sh deploy/local/fetch.sh chromium` installs it")
	t.Skip("there is no Chromium")
	return ""
}

// Browser is a running Chromium. It ends with the test.
type Browser struct{ ctx context.Context }

// Start starts a browser. It skips the test if Chromium is not installed.
func Start(t testing.TB) *Browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(executable(t)))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return &Browser{ctx}
}

// Tab is a tab of a browser. One goroutine uses it at a time.
type Tab struct {
	t    testing.TB
	ctx  context.Context
	base string // the URL before each path

	mu       sync.Mutex
	document string   // the URL that was opened
	reported []string // errors that the browser reported
}

// Tab opens a tab for the pages of a service at the URL base. The tab has cookies of its own and
// ends with the test. All failures of its methods fail the test.
func (b *Browser) Tab(t testing.TB, base string) *Tab {
	t.Helper()
	return open(t, b.ctx, base, chromedp.WithNewBrowserContext())
}

// Beside opens another tab with the same cookies. The new tab ends with the test t.
func (tab *Tab) Beside(t testing.TB) *Tab {
	t.Helper()
	return open(t, tab.ctx, tab.base)
}

// open opens a tab in a browser or beside a tab, as the context parent and the options say.
func open(t testing.TB, parent context.Context, base string, options ...chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(parent, options...)
	t.Cleanup(end)
	tab := &Tab{t: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, tab.listen); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	Call(tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return tab
}

// listen collects errors: failed scripts, calls of console.error, failed calls of console.assert,
// failed requests and violations of a page's policy. An error status of the page that Open opened
// does not count.
func (tab *Tab) listen(event any) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		tab.reported = append(tab.reported, event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError || event.Type == runtime.ConsoleAPICalledTypeAssert {
			text := fmt.Sprintf("console.%s:", event.Type)
			for _, arg := range event.Args {
				text += fmt.Sprintf(" %s", arg.Value)
			}
			tab.reported = append(tab.reported, text)
		}
	case *log.EventEntryAdded:
		ofDocument := event.Entry.Source == log.EntrySourceNetwork && event.Entry.URL == tab.document
		if event.Entry.Level == log.EntryLevelError && !ofDocument {
			tab.reported = append(tab.reported, event.Entry.Text+" "+event.Entry.URL)
		}
	}
}

// BrowserErrors returns the errors that the browser has reported since the last call.
func (tab *Tab) BrowserErrors() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	found := tab.reported
	tab.reported = nil
	return found
}

// Do runs steps, each within stepTimeout. what names them in failures.
func (tab *Tab) Do(what string, steps ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(tab.ctx, stepTimeout)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			tab.t.Fatalf("%s: %v\nThe page:\n%s", what, err, tab.text())
		}
	}
}

// text returns the text of the page, for error messages.
func (tab *Tab) text() string {
	ctx, cancel := context.WithTimeout(tab.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// Open opens the page at a path or URL, and waits for its element main.
func (tab *Tab) Open(path string) {
	tab.t.Helper()
	target := path
	if strings.HasPrefix(path, "/") {
		target = tab.base + path
	}
	tab.mu.Lock()
	tab.document = target
	tab.mu.Unlock()
	tab.Do("open "+path, chromedp.Navigate(target), chromedp.WaitReady(chromedp.CSS("main")))
}

// Path returns the URL path of the page that the tab shows.
func (tab *Tab) Path() string {
	tab.t.Helper()
	u, err := url.Parse(Ask[string](tab, `location.href`))
	if err != nil {
		tab.t.Fatal(err)
	}
	return u.Path
}

// Sees waits until an element within the page's element main shows a text. The text must have no
// double quotes.
func (tab *Tab) Sees(text string) {
	tab.t.Helper()
	query := `//main//*[contains(normalize-space(.), "` + text + `")]`
	tab.Do("wait for "+text, chromedp.WaitVisible(chromedp.Search(query)))
}

// Fill sets the field of a CSS selector to a text, or chooses from a list.
func (tab *Tab) Fill(selector, text string) {
	tab.t.Helper()
	tab.Do("fill in "+selector, chromedp.SetValue(chromedp.CSS(selector), text))
}

// Press clicks the button with a label. The label must have no double quotes.
func (tab *Tab) Press(label string) {
	tab.t.Helper()
	tab.Do("press "+label, chromedp.Click(chromedp.Search(`//button[normalize-space(.)="`+label+`"]`)))
}

// ClickUntil clicks one element, once a second, until another is visible. Both parameters are
// XPaths; each stands for its first visible element. A single click may miss: a page that renders
// itself in the browser may move or replace the element meanwhile.
func (tab *Tab) ClickUntil(clicked, expected string) {
	tab.t.Helper()
	const script = `(clicked, expected) => {
		const find = path => {
			const all = document.evaluate(path, document, null, XPathResult.ORDERED_NODE_ITERATOR_TYPE)
			let element = all.iterateNext()
			while (element && !element.checkVisibility()) element = all.iterateNext()
			return element
		}
		if (find(expected)) return true
		find(clicked)?.click()
		return false
	}`
	ctx, cancel := context.WithTimeout(tab.ctx, stepTimeout)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.PollFunction[bool](script, chromedp.WithPollingArgs(clicked, expected),
		chromedp.WithPollingInterval(time.Second), chromedp.WithPollingTimeout(stepTimeout)))
	if err != nil {
		tab.t.Fatalf("click %s: %v\nThe page:\n%s", clicked, err, tab.text())
	}
}

// Keys types keys, such as kb.Tab, into the element that has the focus.
func (tab *Tab) Keys(keys string) {
	tab.t.Helper()
	tab.Do("type", chromedp.KeyEvent(keys))
}

// Ask returns the value of a JavaScript expression. If the value is a promise, Ask waits for its
// result.
func Ask[T any](tab *Tab, script string) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		tab.t.Fatalf("%.200s: %v", script, err)
	}
	return value
}

// Call sends a command of the Chrome DevTools Protocol to the tab.
func Call[P, R any](tab *Tab, command cdp.Command[P, R], params P) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, stepTimeout)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		tab.t.Fatalf("%s: %v", command.Method, err)
	}
}

// Look sets the width of the window, in CSS pixels, and the colour scheme "light" or "dark".
func (tab *Tab) Look(width int64, scheme string) {
	tab.t.Helper()
	tab.Do("set the window", chromedp.EmulateViewport(width, windowHeight))
	Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// windowHeight is the height of a phone's window, in CSS pixels.
const windowHeight = 844
