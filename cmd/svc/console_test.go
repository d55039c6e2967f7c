package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium returns the path of a browser. It skips the test if there is none.
func chromium(t *testing.T) string {
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
	fmt.Fprintln(os.Stderr,
		"SKIPPED: the console's pages need Chromium; `sh deploy/local/fetch.sh chromium` installs it")
	t.Skip("there is no Chromium")
	return ""
}

// browser is a tab of a real browser.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu         sync.Mutex
	complaints []string // errors that the browser reported
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(chromium(t)))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	b := &browser{t: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return b
}

// listen collects the errors of the browser: failed scripts, and violations of the pages' policy.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.complaints = append(b.complaints, event.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if event.Entry.Level == "error" && !strings.Contains(event.Entry.Text,
			"the server responded with a status of 4") {
			b.complaints = append(b.complaints, event.Entry.Text)
		}
	}
}

// do runs steps, each within a minute.
func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			text, _ := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
			b.t.Fatalf("%s: %v\nThe page:\n%s", what, err, text)
		}
	}
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate(b.base+path), chromedp.WaitReady(chromedp.CSS("main")))
}

// sees waits until the page shows a text.
func (b *browser) sees(text string) {
	b.t.Helper()
	query := fmt.Sprintf(`//main//*[contains(normalize-space(.), %q)]`, text)
	b.do("wait for "+text, chromedp.WaitVisible(chromedp.Search(query)))
}

// fill sets a field, or chooses from a list.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.do("fill in "+selector, chromedp.SetValue(chromedp.CSS(selector), text))
}

func (b *browser) press(label string) {
	b.t.Helper()
	b.do("press "+label, chromedp.Click(chromedp.Search(fmt.Sprintf(`//button[normalize-space(.)=%q]`, label))))
}

func ask[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return value
}

// look sets the width of the window and the colour scheme.
func (b *browser) look(width int64, scheme string) {
	b.t.Helper()
	b.do("set the window", chromedp.EmulateViewport(width, 844))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// An engineer opens the printed link, sends webhooks to the built-in receiver, and completes a
// payment and a batch. The pages update themselves.
func TestConsoleInABrowser(t *testing.T) {
	chromium(t)
	d := newDevFolder(t)
	p, info := d.start()
	link := regexp.MustCompile(`http://\S+/console/enter/\S+`).FindString(p.expect("  console "))
	b := newBrowser(t, info.BaseURL)
	site := "/console/sites/" + info.Organisations[0].Sites[0].SiteID.String()

	b.open(strings.TrimPrefix(link, info.BaseURL))
	b.press("Open the console")
	b.sees("Harbour Street")
	p.expect("The next link is")

	b.open("/console/receiver")
	b.press("Send all events here")
	b.sees("The signing secret, shown this once")

	b.open(site + "/payments/new")
	b.fill("input[name=amount]", "4200")
	b.fill("input[name=orderId]", "order 7")
	b.press("Create and show the QR code")
	b.sees("Scan it")
	if width := ask[int](b, `document.querySelector(".qr img").naturalWidth`); width < 256 {
		t.Errorf("the QR code is %d pixels wide", width)
	}
	b.press("Pay")
	b.sees("Settled")
	b.sees("delivered")

	b.open(site + "/customers")
	b.fill("input[name=customerReference]", "tenant 7")
	b.fill("#invite + form select", "slow")
	b.press("Invite")
	b.sees("1 link matches")
	b.open(site + "/batches/new?fill=linked")
	b.fill("input[name=batchReference]", "2026/11 #7")
	b.press("Dry run")
	b.sees("1 succeeded")
	b.press("Submit the batch")
	b.sees("of 1 row settled")
	b.sees("1 of 1 row settled") // two seconds later
	text := ask[string](b, `document.getElementById("announcement").textContent`)
	if text != "1 of 1 rows are settled." {
		t.Errorf("the announcement for screen readers is %q", text)
	}

	b.open("/console/receiver")
	b.sees("Batch settled")
	b.sees("Transaction status: Settled")
	verified := ask[int](b,
		`[...document.querySelectorAll("summary .tag")].filter(e => e.textContent === "verified").length`)
	if verified != 3 {
		t.Errorf("%d verified webhooks, want 3", verified)
	}
	b.checkPages(site)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		t.Errorf("the browser objects: %s", complaint)
	}
}

// checkPages checks every page in small and large windows and both colour schemes, and the
// navigation by keyboard.
func (b *browser) checkPages(site string) {
	b.t.Helper()
	event := func() string {
		b.open("/console/webhooks")
		return ask[string](b, `document.querySelector("tbody a").getAttribute("href")`)
	}()
	request := func() string {
		b.open("/console/requests")
		return ask[string](b, `document.querySelector("tbody a").getAttribute("href")`)
	}()
	for _, path := range []string{
		"/console", site, site + "/payments", site + "/payments/new", site + "/batches", site + "/batches/new",
		site + "/batch?ref=2026%2F11+%237", site + "/customers", site + "/customer?ref=tenant+7",
		"/console/webhooks", event, "/console/receiver", "/console/requests", request,
		"/console/clock", "/console/faults", "/console/session", "/console/none",
	} {
		for _, width := range []int64{320, 390, 1280} {
			for _, scheme := range []string{"light", "dark"} {
				b.look(width, scheme)
				b.open(path)
				if faults := ask[[]string](b, pageFaults); len(faults) > 0 {
					b.t.Errorf("%s at %d pixels, %s:\n%s", path, width, scheme, strings.Join(faults, "\n"))
				}
			}
		}
	}
	b.open("/console")
	b.do("press Tab", chromedp.KeyEvent("\t"))
	if focus := ask[string](b, `document.activeElement.textContent`); focus != "Skip to the content" {
		b.t.Errorf("the first Tab leads to %q", focus)
	}
}

// pageFaults is a script that lists usability faults: overflow, fields without a name, low
// contrast.
const pageFaults = `(() => {
	const faults = [];
	const pageWidth = document.documentElement.scrollWidth;
	if (pageWidth > innerWidth) faults.push("wider than the window: " + pageWidth);
	const headings = document.querySelectorAll("h1").length;
	if (headings !== 1) faults.push(headings + " main headings");
	for (const field of document.querySelectorAll("input:not([type=hidden]),select,textarea")) {
		if (field.labels.length === 0 && !field.hasAttribute("aria-label")) faults.push("no label: " + field.outerHTML);
	}
	for (const control of document.querySelectorAll("button,a,summary")) {
		if (!control.textContent.trim() && !control.hasAttribute("aria-label")) 
			faults.push("no name: " + control.outerHTML);
	}
	for (const image of document.images) if (!image.alt) faults.push("no alternative: " + image.outerHTML);
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push("twice: #" + id);
	for (const e of document.querySelectorAll("[aria-labelledby],[aria-describedby]")) {
		for (const id of [e.getAttribute("aria-labelledby"), e.getAttribute("aria-describedby")]) {
			if (id && !document.getElementById(id)) faults.push("refers to no element: #" + id);
		}
	}
	const parse = colour => colour.match(/[\d.]+/g).map(Number);
	const light = colour => {
		const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		const [r, g, b] = parse(colour).map(v => linear(v / 255));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = e => {
		for (; e; e = e.parentElement) {
			const colour = getComputedStyle(e).backgroundColor, parts = parse(colour);
			if (parts.length < 4 || parts[3] === 1) return colour;
		}
		return "rgb(255,255,255)";
	};
	const shown = new Set();
	for (const e of document.querySelectorAll("h1,h2,p,a,small,code,dt,dd,th,td,label,button,summary,.tag")) {
		if (!e.checkVisibility() || !e.textContent.trim() || e.matches(".hidden,.skip")) continue;
		const own = light(getComputedStyle(e).color), behind = light(ground(e));
		const ratio = (Math.max(own, behind) + 0.05) / (Math.min(own, behind) + 0.05);
		const text = "contrast " + ratio.toFixed(2) + ": " + e.tagName + "." + e.className;
		if (ratio < 4.5 && !shown.has(text)) { 
			shown.add(text);
			faults.push(text + " " + e.textContent.trim().slice(0, 40));
		}
	}
	return faults;
})()`
