package ops_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/api/web/ops"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

const password = "correct horse battery"

// pagesTest is the served pages with the operators jane, of the role act, and john, of the role
// look.
type pagesTest struct {
	*testing.T
	store  *models.Store
	site   models.Site
	url    string
	client *http.Client
}

func newPagesTest(t *testing.T, change func(*ops.Config)) *pagesTest {
	t.Helper()
	t.Parallel()
	return newPagesTestOn(t, modelstest.Open(t), change)
}

// newPagesTestOn returns a pagesTest on the given store.
func newPagesTestOn(t *testing.T, store *models.Store, change func(*ops.Config)) *pagesTest {
	t.Helper()
	login, err := sharedLogin()
	must(t, err)
	cfg := ops.Config{
		Store: store, Admit: login.Admit, Environment: models.EnvSandbox, QueuesPath: "/ops/queues",
		Log: slog.New(slog.DiscardHandler),
		LookUp: func(ctx context.Context, key string) (ops.RailAnswer, error) {
			known, err := store.DebitOfKey(ctx, key)
			return ops.RailAnswer{Known: known, Status: "succeeded", HasAmount: true, Amount: 100, Currency: "AUD"}, err
		},
	}
	if change != nil {
		change(&cfg)
	}
	server := httptest.NewServer(ops.New(cfg))
	t.Cleanup(server.Close)
	return &pagesTest{t, store, modelstest.Site(t, store), server.URL, &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is an answer of the pages.
type answer struct {
	status int
	header http.Header
	body   string
}

func (p *pagesTest) do(method, path, name string, form url.Values, origin string) answer {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), method, p.url+path, strings.NewReader(form.Encode()))
	must(p.T, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
		req.Header.Set("Sec-Fetch-Site", map[bool]string{true: "same-origin", false: "cross-site"}[origin == p.url])
	}
	if name != "" {
		req.SetBasicAuth(name, password)
	}
	resp, err := p.client.Do(req)
	must(p.T, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(p.T, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// page returns a page as jane sees it.
func (p *pagesTest) page(path string, contains ...string) string {
	p.Helper()
	a := p.do(http.MethodGet, path, "jane", nil, "")
	if a.status != http.StatusOK {
		p.Fatalf("%s: %d\n%s", path, a.status, a.body)
	}
	for _, text := range contains {
		if !strings.Contains(a.body, text) {
			p.Errorf("%s lacks %q:\n%s", path, text, a.body)
		}
	}
	return a.body
}

// post sends a form as a browser does.
func (p *pagesTest) post(path, name string, fields ...string) answer {
	p.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return p.do(http.MethodPost, path, name, form, p.url)
}

func (p *pagesTest) newest() models.AuditEntry {
	p.Helper()
	entries, err := p.store.AuditLog(p.Context(), models.AuditFilter{}, models.AuditPosition{}, 1)
	must(p.T, err)
	if len(entries) == 0 {
		return models.AuditEntry{}
	}
	return entries[0]
}

// paths are all pages with parameters that find something.
func (p *pagesTest) paths() []string {
	p.Helper()
	organisation := p.site.OrganisationID.String()
	modelstest.Customer(p, p.store, p.site.ID, "ada", models.BehaviourPays)
	modelstest.Submit(p, p.store, modelstest.Batch(p.site, "a <b> & c", "ada", "bob"))
	intent := modelstest.Intent(p, p.store, p.site.ID, 500)
	modelstest.AdvanceClock(p, p.store, models.DefaultIntentLife)
	_, err := p.store.ExpirePaymentIntents(p.Context(), 10)
	must(p.T, err)
	page, err := p.store.ListWebhookEvents(p.Context(),
		models.WebhookQuery{OrganisationID: p.site.OrganisationID, Limit: 1})
	must(p.T, err)
	return []string{
		"/ops", "/ops/", "/ops?refresh=on", "/ops/search", "/ops/search?q=ada", "/ops/webhooks", "/ops/pauses", "/ops/books",
		"/ops/log", "/ops/organisation?id=" + organisation, "/ops/payment?id=" + intent.ID.String(),
		"/ops/batch?site=" + p.site.ID.String() + "&ref=" + url.QueryEscape("a <b> & c"),
		"/ops/events?organisation=" + organisation, "/ops/events?status=undelivered&organisation=" + organisation,
		"/ops/event?organisation=" + organisation + "&id=" + page.Items[0].ID.String(),
	}
}
