package ops_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"partnerbilling/api/web/ops"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

// Every page needs the login and has a strict policy. With the role look it has no form that acts.
func TestPages(t *testing.T) {
	p := newPagesTest(t, nil)
	acting := regexp.MustCompile(`<form method="post"`)
	for _, path := range p.paths() {
		if a := p.do(http.MethodGet, path, "", nil, ""); a.status != http.StatusUnauthorized ||
			!strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") || strings.Contains(a.body, "<nav") {
			t.Errorf("%s without a login: %d %v", path, a.status, a.header)
		}
		a := p.do(http.MethodGet, path, "john", nil, "")
		if a.status != http.StatusOK || acting.MatchString(a.body) {
			t.Errorf("%s for a role that looks: %d\n%s", path, a.status, a.body)
		}
		if policy := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") ||
			strings.Contains(policy, "unsafe") || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, a.header)
		}
		if strings.Contains(a.body, "<b> & c") || strings.Contains(a.body, " style=") ||
			strings.Contains(a.body, "<script") {
			t.Errorf("%s: not escaped, or with inline style or script:\n%s", path, a.body)
		}
		p.page(path, "<nav", `<main id="main"`)
	}
	style := regexp.MustCompile(`href="(/ops/assets/[^"]+\.css)"`).FindStringSubmatch(p.page("/ops"))
	if a := p.do(http.MethodGet, style[1], "", nil, ""); a.status != http.StatusOK ||
		!strings.Contains(a.body, "prefers-color-scheme") {
		t.Errorf("style: %d", a.status)
	}
	for path, want := range map[string]int{
		"/ops/nothing": 404, "/ops/batch": 400, "/ops/payment?id=x": 400, "/ops/organisation?id=x": 400,
		"/ops/payment?id=" + models.NewPaymentIntentID().String(): 404, "/ops/log?from=yesterday": 400,
		"/ops/log?afterId=x&afterAt=1": 400, "/ops/log?afterId=x&afterAt=x": 400,
		"/ops/batch?ref=x&site=" + p.site.ID.String():                                    404,
		"/ops/events?status=x&organisation=" + p.site.OrganisationID.String():            400,
		"/ops/events?afterId=x&afterAt=x&organisation=" + p.site.OrganisationID.String(): 400,
		"/ops/batch?ref=a%00b&site=" + p.site.ID.String():                                400,
		"/ops/batch?ref=a%ffb&site=" + p.site.ID.String():                                400,
		"/ops/log?actor=a%00b": 400,
	} {
		if a := p.do(http.MethodGet, path, "john", nil, ""); a.status != want || !strings.Contains(a.body, "<main") {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	if a := p.post("/ops/alert", "jane", "do", "close", "kind", "a\x00b", "subject",
		"x"); a.status != http.StatusBadRequest {
		t.Errorf("a form without text: %d", a.status)
	}
	for _, path := range []string{"/ops/alert", "/ops/debits", "/ops/queue"} {
		a := p.post(path, "jane", "do", "other", "organisation", p.site.OrganisationID.String(), "queue", "webhooks",
			"reason", "x")
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "names no act") {
			t.Errorf("%s with another act: %d, %s", path, a.status, a.body)
		}
	}
}

// The page of an organisation shows the colour of its hosted pages.
func TestOrganisationColour(t *testing.T) {
	p := newPagesTest(t, nil)
	path := "/ops/organisation?id=" + p.site.OrganisationID.String()
	p.page(path, "colour of the hosted pages: by the name")
	must(t, p.store.SetOrganisationColour(t.Context(), p.site.OrganisationID, "#1f5fae"))
	p.page(path, "colour of the hosted pages: <code>#1f5fae</code>")
}

// formOf is a form of the pages and the entry that its act leaves.
type formOf struct {
	path    string
	fields  []string
	act     models.ActName
	subject models.SubjectKind
}

// forms prepares a subject for every act.
func (p *pagesTest) forms() []formOf {
	p.Helper()
	ring := modelstest.Keyring(p, seal.GenerateMasterKey())
	organisation := p.site.OrganisationID
	_, _, err := p.store.PutWebhookEndpoint(p.Context(), ring, organisation, models.SiteID{},
		"https://partner.example/")
	must(p.T, err)
	_, err = p.store.DB().ExecContext(p.Context(), "UPDATE webhook_endpoints SET disabled_at = 1")
	must(p.T, err)
	for _, subject := range []string{"one", "two"} {
		_, err := p.store.DB().ExecContext(p.Context(), "SELECT raise_alert('lateTruth', ?, NULL, NULL, '', '')",
			subject)
		must(p.T, err)
	}
	modelstest.Intent(p, p.store, p.site.ID, 500)
	modelstest.AdvanceClock(p, p.store, models.DefaultIntentLife)
	_, err = p.store.ExpirePaymentIntents(p.Context(), 10)
	must(p.T, err)
	page, err := p.store.ListWebhookEvents(p.Context(), models.WebhookQuery{OrganisationID: organisation, Limit: 1})
	must(p.T, err)
	event, o := page.Items[0].ID.String(), organisation.String()
	return []formOf{
		{"/ops/alert", []string{"do", "acknowledge", "kind", "lateTruth", "subject", "one"}, models.ActAcknowledgeAlert, models.SubjectAlert},
		{"/ops/alert", []string{"do", "close", "kind", "lateTruth", "subject", "two"}, models.ActCloseAlert, models.SubjectAlert},
		{"/ops/debits", []string{"do", "pause", "organisation", o}, models.ActPauseDebits, models.SubjectOrganisation},
		{"/ops/debits", []string{"do", "resume", "organisation", o}, models.ActResumeDebits, models.SubjectOrganisation},
		{"/ops/queue", []string{"do", "pause", "queue", "webhooks"}, models.ActPauseQueue, models.SubjectQueue},
		{"/ops/queue", []string{"do", "resume", "queue", "webhooks"}, models.ActResumeQueue, models.SubjectQueue},
		{"/ops/event", []string{"organisation", o, "id", event}, models.ActRedeliverForPartner, models.SubjectWebhookEvent},
		{"/ops/events", []string{"organisation", o, "status", "failed", "from", "2026-01-31T08:00"}, models.ActRedeliverForPartner, models.SubjectWebhookEvent},
		{"/ops/endpoint", []string{"organisation", o, "site", ""}, models.ActUnparkEndpoint, models.SubjectWebhookEndpoint},
		{"/ops/lookup", []string{"key", "r1_key"}, models.ActLookUpDebit, models.SubjectRailKey},
	}
}

// Every act is in the audit log with operator, origin, reason and outcome: those done, and those
// that the role does not allow. Forms of other sites do nothing.
func TestActs(t *testing.T) {
	p := newPagesTest(t, nil)
	for _, f := range p.forms() {
		fields := append([]string{"reason", "the partner asked", "next", "/ops/pauses"}, f.fields...)
		before := p.newest().ID
		if a := p.post(f.path, "", fields...); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d", f.path, a.status)
		}
		form := url.Values{}
		for i := 0; i+1 < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		if a := p.do(http.MethodPost, f.path, "jane", form, "https://evil.example"); a.status != http.StatusForbidden {
			t.Errorf("%s from another site: %d", f.path, a.status)
		}
		if p.newest().ID != before {
			t.Errorf("%s left an entry %+v", f.path, p.newest())
		}
		a := p.post(f.path, "john", fields...)
		e := p.newest()
		if a.status != http.StatusForbidden || e.Act != f.act || e.Outcome != models.ActRefused ||
			e.Code != "roleNotAllowed" || e.Actor != "john" {
			t.Errorf("%s for a role that looks: %d, %+v", f.path, a.status, e)
		}
		a = p.post(f.path, "jane", fields...)
		e = p.newest()
		if f.path == "/ops/lookup" && a.status == http.StatusOK && strings.Contains(a.body, "no row and no payment") {
			a.status = http.StatusSeeOther
		} else if to, done := a.header.Get("Location"), a.header.Get("Set-Cookie"); to != "/ops/pauses" ||
			!strings.HasPrefix(done, "ops-done=") || !strings.HasSuffix(done, "; HttpOnly; SameSite=Strict") {
			t.Errorf("%s leads to %q with the cookie %q", f.path, to, done)
		}
		if a.status != http.StatusSeeOther || e.Act != f.act || e.Outcome != models.ActDone || e.Actor != "jane" ||
			e.ActorKind != models.ActorOperator || e.Origin != "127.0.0.1" || e.SubjectKind != f.subject ||
			!strings.Contains(string(e.Detail), "the partner asked") || len(e.TraceID) != 32 {
			t.Errorf("%s: %d, %+v\n%s", f.path, a.status, e, a.body)
		}
	}
}

// The page after an act tells once what was done. A link cannot make a page tell anything.
func TestPageAfterAnAct(t *testing.T) {
	p := newPagesTest(t, nil)
	jar, err := cookiejar.New(nil)
	must(t, err)
	p.client.Jar = jar
	const done = `class="done"`
	p.post("/ops/queue", "jane", "do", "pause", "queue", "webhooks", "reason", "x", "next", "/ops/pauses?a=b")
	p.page("/ops/pauses", done, "webhooks")
	for _, path := range []string{"/ops/pauses", "/ops/pauses?done=call+me"} {
		if strings.Contains(p.page(path), done) {
			t.Errorf("%s tells of an act", path)
		}
	}
}

// The cookie that tells of an act goes over HTTPS only, if the service is reached by it.
func TestCookieIsSecure(t *testing.T) {
	for base, want := range map[string]bool{"https://billing.example": true, "http://localhost": false, "": false} {
		t.Run(base, func(t *testing.T) {
			p := newPagesTest(t, func(cfg *ops.Config) { cfg.PublicBaseURL = base })
			a := p.post("/ops/queue", "jane", "do", "pause", "queue", "webhooks", "reason", "x")
			cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
			if err != nil || cookie.Name != "ops-done" || cookie.Secure != want {
				t.Errorf("cookie %+v, %v", cookie, err)
			}
		})
	}
}

// Dangerous acts need a reason. Refused acts get a page and an entry in the audit log.
func TestRefusedActs(t *testing.T) {
	p := newPagesTest(t, func(cfg *ops.Config) { cfg.LookUp = nil })
	o := p.site.OrganisationID.String()
	for _, tt := range []struct {
		path   string
		fields []string
		status int
		code   string
	}{
		{"/ops/debits", []string{"do", "pause", "organisation", o}, 400, "reasonRequired"},
		{"/ops/debits", []string{"do", "resume", "organisation", o, "reason", "x"}, 409, "notPaused"},
		{"/ops/debits", []string{"do", "pause", "organisation", "x", "reason", "x"}, 400, "invalidId"},
		{"/ops/queue", []string{"do", "pause", "queue", "webhooks"}, 400, "reasonRequired"},
		{"/ops/queue", []string{"do", "pause", "queue", "sweeps", "reason", "x"}, 400, "notPausable"},
		{"/ops/events", []string{"organisation", o, "status", "failed"}, 400, "reasonRequired"},
		{"/ops/events", []string{"organisation", o, "status", "pending", "reason", "x"}, 400, "internal"},
		{"/ops/event", []string{"organisation", o, "id", models.NewWebhookEventID().String()}, 404, "notFound"},
		{"/ops/endpoint", []string{"organisation", o}, 404, "noWebhookEndpoint"},
		{"/ops/alert", []string{"do", "close", "kind", "x", "subject", "y"}, 404, "notFound"},
		{"/ops/alert", []string{"do", "close", "kind", "x", "subject", "y", "reason", "\u202e"}, 400, "reasonRequired"},
		{"/ops/lookup", []string{"key", "r1_key"}, 409, "internal"},
	} {
		a := p.post(tt.path, "jane", tt.fields...)
		if e := p.newest(); a.status != tt.status || e.Code != tt.code || !strings.Contains(a.body, string(e.TraceID)) {
			t.Errorf("%s %v: %d, want %d; entry %+v", tt.path, tt.fields, a.status, tt.status, e)
		}
	}
}

// A pause shows on every page until its end.
func TestPauseShowsEverywhere(t *testing.T) {
	p := newPagesTest(t, nil)
	o := p.site.OrganisationID.String()
	p.post("/ops/debits", "jane", "do", "pause", "organisation", o, "reason", "double submission")
	for _, path := range []string{"/ops", "/ops/search", "/ops/books", "/ops/pauses"} {
		p.page(path, "Paused:", "double submission", "jane")
	}
	p.post("/ops/debits", "jane", "do", "resume", "organisation", o, "reason", "cleared")
	if strings.Contains(p.page("/ops"), "Paused:") {
		t.Error("the pause still shows")
	}
}

// The redirect after an act stays below /ops.
func TestRedirectsStay(t *testing.T) {
	p := newPagesTest(t, nil)
	o := p.site.OrganisationID.String()
	for i, next := range []string{"https://evil.example/ops", "//evil.example/ops", "/opsx", "javascript:alert(1)",
		"/ops/../x"} {
		do := []string{"pause", "resume"}[i%2]
		a := p.post("/ops/debits", "jane", "do", do, "organisation", o, "reason", "x", "next", next)
		if to := a.header.Get("Location"); a.status != http.StatusSeeOther || to != "/ops" &&
			!strings.HasPrefix(to, "/ops/") &&
			!strings.HasPrefix(to, "/ops?") {
			t.Errorf("%s leads to %q", next, to)
		}
	}
}

// Without Postgres, pages and acts answer 503.
func TestPagesWithoutPostgres(t *testing.T) {
	p := newPagesTest(t, func(cfg *ops.Config) {
		unreachable, err := models.Open(postgres.Config{DSN: "postgres://127.0.0.1:1/svc", MaxConns: 1})
		must(t, err)
		t.Cleanup(func() { must(t, unreachable.Close()) })
		cfg.Store = unreachable
	})
	for _, path := range []string{"/ops", "/ops/search?q=x", "/ops/pauses"} {
		if a := p.do(http.MethodGet, path, "jane", nil, ""); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := p.post("/ops/queue", "jane", "do", "pause", "queue", "debits", "reason",
		"x"); a.status != http.StatusServiceUnavailable {
		t.Errorf("an act: %d", a.status)
	}
}
