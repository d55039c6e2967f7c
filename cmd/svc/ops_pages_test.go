package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"partnerbilling/api/web/webtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// giveReason fills in the reason of every form on the page.
func giveReason(b *webtest.Tab, text string) {
	webtest.Ask[int](b, fmt.Sprintf(`(() => {
		const all = document.querySelectorAll("main input[name=reason]:not([type=hidden])");
		for (const field of all) field.value = %q; return all.length })()`, text))
}

// follow clicks a link by its text.
func follow(b *webtest.Tab, text string) {
	b.Do("follow "+text, chromedp.Click(chromedp.Search(fmt.Sprintf(`//main//a[normalize-space(.)=%q]`, text))))
}

// operations is the state that an operator acts on.
type operations struct {
	*testing.T
	store        *models.Store
	organisation string
	batch        string // path of its page
	payment      string
	event        string
}

// newOperations prepares a batch, a payment with an undelivered event, a disabled endpoint and an
// alert.
func newOperations(t *testing.T, info sandboxInfo) *operations {
	t.Helper()
	store, err := models.Open(postgres.Config{DSN: info.DatabaseURL, MaxConns: 2})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	first := info.Organisations[0]
	site := models.Site{ID: first.Sites[0].SiteID, OrganisationID: first.OrganisationID}
	modelstest.Submit(t, store, modelstest.Batch(site, "november", "ada"))
	intent := modelstest.Intent(t, store, site.ID, 500)
	_, _, err = store.CancelPaymentIntent(t.Context(), site.ID, intent.ID)
	must(t, err)
	page, err := store.ListWebhookEvents(t.Context(),
		models.WebhookQuery{OrganisationID: site.OrganisationID, Limit: 1})
	must(t, err)
	key, err := os.ReadFile(info.MasterKeyFile)
	must(t, err)
	ring := modelstest.Keyring(t, strings.TrimSpace(string(key)))
	_, _, err = store.PutWebhookEndpoint(t.Context(), ring, site.OrganisationID, site.ID, "http://127.0.0.1:9/hook")
	must(t, err)
	for _, query := range []string{
		"UPDATE webhook_endpoints SET disabled_at = svc_now()",
		"SELECT raise_alert('lateTruth', 'r1_key', NULL, NULL, 'row 7 of batch november: succeeded', '')",
	} {
		_, err := store.DB().ExecContext(t.Context(), query)
		must(t, err)
	}
	organisation := site.OrganisationID.String()
	return &operations{
		T: t, store: store, organisation: organisation,
		batch:   "/ops/batch?ref=november&site=" + site.ID.String(),
		payment: "/ops/payment?id=" + intent.ID.String(),
		event:   "/ops/event?id=" + page.Items[0].ID.String() + "&organisation=" + organisation,
	}
}

// An operator does every act once in a browser. Each is in the audit log with its reason.
func TestOperatorPagesInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a long walk through pages")
	}
	browser := webtest.Start(t)
	d := newDevFolder(t)
	_, info := d.start()
	o := newOperations(t, info)
	base, err := url.Parse(info.BaseURL)
	must(t, err)
	base.User = url.UserPassword(info.Ops.Username, info.Ops.Password)
	b := browser.Tab(t, info.BaseURL)
	reason := func(text string) { giveReason(b, text) }

	b.Open(base.JoinPath("ops").String()) // the browser remembers the login
	reason("looking into it")
	b.Press("Acknowledge")
	b.Sees("The alert is yours now.")
	reason("told the partner")
	b.Press("Close")
	b.Sees("No alert is open.")

	b.Open("/ops/search")
	b.Fill("input[name=q]", "november")
	b.Press("Search")
	follow(b, "november")
	b.Sees("Batch november")
	b.Press("Look up")
	b.Sees("The rail's answer")
	follow(b, "Back")
	b.Sees("Batch november")

	b.Open("/ops/organisation?id=" + o.organisation)
	reason("double submission")
	b.Press("Pause the debits")
	b.Sees("The debits are paused.")
	b.Sees("double submission")
	o.checkPages(b)
	b.Open("/ops/organisation?id=" + o.organisation)
	reason("cleared")
	b.Press("Resume the debits")
	b.Sees("The debits are resumed.")

	b.Open("/ops/pauses")
	b.Fill("select[name=queue]", "webhooks")
	reason("receiver asked")
	b.Press("Pause the queue")
	b.Sees("The queue is paused.")
	reason("receiver is back")
	b.Press("Resume webhooks")
	b.Sees("The queue is resumed.")

	b.Open("/ops/webhooks")
	reason("partner has mended it")
	b.Press("Unpark")
	b.Sees("The endpoint is unparked.")
	b.Open("/ops/events?status=undelivered&organisation=" + o.organisation)
	reason("partner has mended it")
	b.Press("Redeliver all that match")
	b.Sees("1 event will be delivered again.")
	b.Open(o.event)
	reason("once more")
	b.Press("Redeliver")
	b.Sees("The event will be delivered again.")
	o.wantEntries()
	for _, reported := range b.BrowserErrors() {
		t.Errorf("the browser reports: %s", reported)
	}
}

// wantEntries checks the audit log after every act.
func (o *operations) wantEntries() {
	o.Helper()
	entries, err := o.store.AuditLog(o.Context(), models.AuditFilter{Actor: "operator"}, models.AuditPosition{}, 100)
	must(o.T, err)
	want := map[models.ActName]string{
		models.ActAcknowledgeAlert: "looking into it", models.ActCloseAlert: "told the partner",
		models.ActLookUpDebit: "", models.ActPauseDebits: "double submission", models.ActResumeDebits: "cleared",
		models.ActPauseQueue: "receiver asked", models.ActResumeQueue: "receiver is back",
		models.ActUnparkEndpoint: "partner has mended it", models.ActRedeliverForPartner: "once more",
	}
	for _, e := range entries {
		if reason, ok := want[e.Act]; !ok || e.Outcome != models.ActDone ||
			!strings.Contains(string(e.Detail), reason) {
			continue
		}
		delete(want, e.Act)
	}
	if len(want) > 0 {
		o.Errorf("the audit log lacks %v in %+v", want, entries)
	}
}

// checkPages checks every page, and the navigation by keyboard.
func (o *operations) checkPages(b *webtest.Tab) {
	o.Helper()
	for _, view := range []webtest.View{
		{Name: "overview", Path: "/ops"}, {Name: "search", Path: "/ops/search?q=november"},
		{Name: "organisation", Path: "/ops/organisation?id=" + o.organisation}, {Name: "batch", Path: o.batch},
		{Name: "payment", Path: o.payment}, {Name: "event", Path: o.event}, {Name: "webhooks", Path: "/ops/webhooks"},
		{Name: "pauses", Path: "/ops/pauses"}, {Name: "books", Path: "/ops/books"}, {Name: "log", Path: "/ops/log"},
		{Name: "events", Path: "/ops/events?organisation=" + o.organisation}, {Name: "problem", Path: "/ops/none"},
	} {
		b.Open(view.Path)
		b.Check(view)
	}
	b.Open("/ops")
	b.Keys(kb.Tab)
	if focus := webtest.Ask[string](b, `document.activeElement.textContent`); focus != "Skip to the content" {
		o.Errorf("the first Tab leads to %q", focus)
	}
}

// The pages of svc dev need the login, and lie beside the queue dashboard.
func TestOperatorPagesNeedTheLogin(t *testing.T) {
	_, info := newDevFolder(t).start()
	for _, path := range []string{"/ops", "/ops/", "/ops/log", "/ops/queues"} {
		if status, _ := get(t, info.BaseURL+path, "", ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d", path, status)
		}
		if status, _ := get(t, info.BaseURL+path, info.Ops.Username, info.Ops.Password); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
}
