package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"partnerbilling/api/web/webtest"
)

// An engineer opens the printed link, sends webhooks to the built-in receiver, and completes a
// payment and a batch. The pages update themselves.
func TestConsoleInABrowser(t *testing.T) {
	browser := webtest.Start(t)
	d := newDevFolder(t)
	p, info := d.start()
	link := regexp.MustCompile(`http://\S+/console/enter/\S+`).FindString(p.expect("  console "))
	b := browser.Tab(t, info.BaseURL)
	site := "/console/sites/" + info.Organisations[0].Sites[0].SiteID.String()

	b.Open(strings.TrimPrefix(link, info.BaseURL))
	b.Press("Open the console")
	b.Sees("Harbour Street")
	p.expect("The next link is")

	b.Open("/console/receiver")
	b.Press("Send all events here")
	b.Sees("The signing secret, shown this once")

	b.Open(site + "/payments/new")
	b.Fill("input[name=amount]", "4200")
	b.Fill("input[name=orderId]", "order 7")
	b.Press("Create and show the QR code")
	b.Sees("lets a phone scan it")
	if width := webtest.Ask[int](b, `document.querySelector(".qr img").naturalWidth`); width < 256 {
		t.Errorf("the QR code is %d pixels wide", width)
	}
	b.Press("Pay")
	b.Sees("Settled")
	b.Sees("delivered")

	b.Open(site + "/customers")
	b.Fill("input[name=customerReference]", "tenant 7")
	b.Fill("#invite + form select", "slow")
	b.Press("Invite")
	b.Sees("1 link matches")
	b.Open(site + "/batches/new?fill=linked")
	b.Fill("input[name=batchReference]", "2026/11 #7")
	b.Press("Dry run")
	b.Sees("1 succeeded")
	b.Press("Submit the batch")
	b.Sees("of 1 row settled")
	b.Sees("1 of 1 row settled") // two seconds later
	text := webtest.Ask[string](b, `document.getElementById("announcement").textContent`)
	if text != "1 of 1 rows are settled." {
		t.Errorf("the announcement for screen readers is %q", text)
	}

	b.Open("/console/receiver")
	b.Sees("Batch settled")
	b.Sees("Transaction status: Settled")
	verified := webtest.Ask[int](b,
		`[...document.querySelectorAll("summary .tag")].filter(e => e.textContent === "verified").length`)
	if verified != 3 {
		t.Errorf("%d verified webhooks, want 3", verified)
	}
	b.Press("Send a test event")
	b.Sees("Settled test")
	if path := b.Path(); path != "/console/receiver" {
		t.Errorf("the test event leads to %s", path)
	}
	for _, reported := range b.BrowserErrors() {
		t.Errorf("the browser reports: %s", reported)
	}
	webtest.CheckAll(t, b.Beside, consoleViews(b, site))
	walkConsole(b, site)
}

// consoleViews lists the pages of the console after the flow of TestConsoleInABrowser.
func consoleViews(b *webtest.Tab, site string) []webtest.View {
	first := func(path string) string {
		b.Open(path)
		return webtest.Ask[string](b, `document.querySelector("tbody a").getAttribute("href")`)
	}
	return []webtest.View{
		{Name: "overview", Path: "/console"},
		{Name: "Site", Path: site},
		{Name: "payments", Path: site + "/payments"},
		{Name: "payment", Path: first(site + "/payments")},
		{Name: "new payment", Path: site + "/payments/new"},
		{Name: "batches", Path: site + "/batches"},
		{Name: "batch", Path: site + "/batch?ref=2026%2F11+%237"},
		{Name: "new batch", Path: site + "/batches/new"},
		{Name: "customers", Path: site + "/customers"},
		{Name: "customer", Path: site + "/customer?ref=tenant+7"},
		{Name: "webhooks", Path: "/console/webhooks"},
		{Name: "webhook event", Path: first("/console/webhooks")},
		{Name: "receiver", Path: "/console/receiver"},
		{Name: "requests", Path: "/console/requests"},
		{Name: "request", Path: first("/console/requests")},
		{Name: "clock", Path: "/console/clock"},
		{Name: "faults", Path: "/console/faults"},
		{Name: "sign-in", Path: "/console/session"},
		{Name: "unknown page", Path: "/console/none"},
	}
}

// walkConsole invites a customer and creates a payment by keyboard alone.
func walkConsole(b *webtest.Tab, site string) {
	b.Open(site + "/customers")
	if stops := b.Stops(); len(stops) < 10 || stops[0].Name != "Skip to the content" {
		b.Errorf("the Tab key stops at %v", stops)
	}
	b.Open(site + "/customers")
	b.TabTo("customerReference")
	b.Keys("tenant 8" + kb.Enter)
	b.Sees("The sign-up link, for you to deliver")
	b.Open(site + "/payments/new")
	b.TabTo("Amount in cents")
	b.Keys("700")
	b.TabTo("Create and show the QR code")
	b.Keys(" ")
	b.Sees("lets a phone scan it")
	b.TabTo("Pay")
	b.Keys(kb.Enter)
	b.Sees("Settled")
}
