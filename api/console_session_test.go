package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

func TestConsoleSignIn(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.visitor(t)
	if got := v.open("/console").expect(303).to(); got != "/console/session" {
		t.Errorf("without a session it leads to %q", got)
	}
	asked := c.page("/payments?status=Settled")
	next := v.open(asked).expect(303).to()
	v.open(next).expect(200, "Sign in to the console", "clientSecret")
	v.submit("/console/session", "clientId", c.id, "clientSecret", "wrong").
		expect(401, "do not belong together", `value="`+c.id+`"`).
		lacks("wrong")
	before, csrf := v.cookie, v.csrf
	if got := v.submit("/console/session", "clientId", c.id, "clientSecret", c.secret, "next", asked).expect(303).
		to(); got != asked {
		t.Errorf("the sign-in leads to %q", got)
	}
	if v.cookie == before {
		t.Error("the session of the sign-in is the one from before it")
	}
	v.open("/console").expect(200, c.id, "billing:customers:read", "Sign out")
	if v.csrf == csrf {
		t.Error("the CSRF token is the one from before the sign-in")
	}
	for _, elsewhere := range []string{"https://evil.example/console/x", "//evil.example/console/", "/docs",
		"/console/\\evil", "javascript:alert(1)"} {
		v.open("/console/session")
		if got := v.submit("/console/session", "clientId", c.id, "clientSecret", c.secret, "next", elsewhere).
			expect(303).to(); got != "/console" {
			t.Errorf("with the next page %q it leads to %q", elsewhere, got)
		}
	}
	v.open("/console")
	v.submit("/console/session/end").expect(303)
	v.cookie = "" // as browsers drop it
	v.open("/console").expect(303)

	appID, appSecret := c.client(t, models.OrganisationID{}, models.CustomerAppScopes)
	v.open("/console/session")
	v.submit("/console/session", "clientId", appID, "clientSecret", appSecret).
		expect(401, "not the credentials of an organisation's API client")
	v.submit("/console/session", "clientId", c.id, "clientSecret", c.secret).expect(303) // the form still works
}

// A sign-in succeeds only if browsers keep its cookie. The Sites that a session remembers do not
// make the cookie too long.
func TestConsoleSignInWithALongToken(t *testing.T) {
	t.Parallel()
	tokens := callers{}
	c := newConsoles(t, func(cfg *api.Config) { cfg.Authenticator, cfg.Issuer = tokens, nil })
	principal := api.Principal{ClientID: c.billing.client, OrganisationID: c.owner, Scopes: models.PartnerScopes}
	const least, most = 2800, 3100
	for n := least; n <= most; n += 20 {
		tokens[strings.Repeat("a", n)] = principal
	}
	tokens[strings.Repeat("a", 8192)] = principal
	var accepted, refused int
	for token := range tokens {
		v := c.visitor(t)
		v.open("/console/session")
		s := v.submit("/console/session", "accessToken", token)
		if s.status == 303 {
			accepted++
			for _, site := range []models.SiteID{c.site, c.sister, c.site} {
				v.open("/console/sites/" + site.String()).expect(200)
			}
		} else {
			refused++
			s.expect(400, "access token is too long", "Sign in to the console").lacks("Sign out")
			v.submit("/console/session", "accessToken", token).expect(400) // the form still works
		}
		if n := len("svc_console") + len(v.cookie); n > 4096 {
			t.Errorf("a token of %d bytes: the cookie has %d bytes", len(token), n)
		}
	}
	if accepted == 0 || refused < 2 {
		t.Errorf("%d tokens are accepted, %d refused", accepted, refused)
	}
}

// A session is the browser's alone: it ends with its hour, and when a character of it changes.
func TestConsoleSessionEnds(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	for i := 0; i < len(v.cookie); i += 97 {
		other := *v
		flipped := byte('A')
		if v.cookie[i] == 'A' {
			flipped = 'B'
		}
		other.cookie = v.cookie[:i] + string(flipped) + v.cookie[i+1:]
		other.open("/console").expect(303)
	}
	for _, cookie := range []string{"x", strings.Repeat("A", 5000), "=", v.cookie + v.cookie} {
		other := *v
		other.cookie = cookie
		other.open("/console").expect(303)
	}
	v.open("/console").expect(200)
	kept := *v
	c.ahead.Store(int64(time.Hour - 30*time.Second))
	v.open("/console").expect(200)
	c.ahead.Store(int64(time.Hour + time.Second))
	v.open("/console").expect(303)
	c.ahead.Store(0)
	kept.open("/console").expect(200)
}

func TestConsoleForms(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v, other := c.signedIn(t), c.signedIn(t)
	path := c.page("/customers")
	refused := func(s *seen) {
		t.Helper()
		s.expect(400, "The form was not accepted")
	}
	v.open(path)
	for _, token := range []string{"", "x", other.csrf, v.csrf + "A"} {
		forged := *v
		forged.csrf = token
		refused(forged.submit(path, "customerReference", "ada"))
	}
	for _, from := range []string{"cross-site", "same-site"} {
		forged := *v
		forged.header = http.Header{"Sec-Fetch-Site": {from}}
		refused(forged.submit(path, "customerReference", "ada"))
	}
	refused(v.send("POST", path, "application/json", strings.NewReader(`{"csrf":"`+v.csrf+`"}`)))
	refused(v.send("POST", path, "text/plain", strings.NewReader("csrf="+v.csrf)))
	refused(v.submit(c.page("/payment"), "id", "x", "action", "no"))
	refused(v.submit(path, "customerReference", "ren\xe9")) // JSON would make it another customer
	large := v.send("POST", path, "application/x-www-form-urlencoded",
		strings.NewReader("csrf="+v.csrf+"&x="+strings.Repeat("a", 64<<10)))
	large.expect(413, "This did not work", "at most 65536 bytes")
	v.open(path).expect(200, "No customer matches")
	own := *v
	own.header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
	own.submit(path, "customerReference", "ada").expect(303)
}

func TestConsoleLink(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	var id models.ClientID
	check(t, id.UnmarshalText([]byte(c.id)))
	grant := console.Grant{ClientID: id, ClientSecret: c.secret, Sites: []models.SiteID{c.sister, c.otherSite, c.site}}
	link := c.links.Issue(grant)
	v := c.visitor(t)
	for range 3 { // a GET does not use the link
		v.open(link).expect(200, "signs in once")
	}
	var won sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		won.Go(func() {
			w := c.visitor(t)
			w.open(link)
			statuses[i] = w.submit(link).status
		})
	}
	won.Wait()
	if n := count(statuses, 303); n != 1 || count(statuses, 410) != len(statuses)-1 || c.used.Load() != 1 {
		t.Errorf("a link that was used %d times at once: %v, %d told", len(statuses), statuses, c.used.Load())
	}
	v.open(link).expect(410, "used already")
	link = c.links.Issue(grant)
	v.open(link)
	v.submit(link).expect(303)
	page := v.open("/console").expect(200, c.site.String(), c.sister.String())
	page.lacks(c.otherSite.String()) // a Site of another organisation
	if strings.Index(page.body, c.site.String()) > strings.Index(page.body, c.sister.String()) {
		t.Error("the last Site of the link does not come first")
	}
	v.open("/console/enter/NONE").expect(410)
}

func count(all []int, one int) (n int) {
	for _, v := range all {
		if v == one {
			n++
		}
	}
	return n
}

func TestConsoleIsAbsentInProduction(t *testing.T) {
	t.Parallel()
	b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	for _, path := range []string{"/console", "/console/session", "/console/receiver/x", "/console/clock"} {
		b.Get(path).Refused(404, "requests:not-found")
		b.Post(path, nil).Refused(404, "requests:not-found")
	}
	hosted := newConsoles(t, func(cfg *api.Config) { cfg.Sandbox.Clock = false })
	v := hosted.signedIn(t)
	v.open("/console/clock").expect(404)
	v.open("/console").expect(200).lacks("/console/clock")
}

// A client without all scopes sees what it may, and is told that more is missing.
func TestConsoleOfANarrowClient(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	c.id, c.secret = c.client(t, c.owner, []models.Scope{models.ScopePaymentIntentsRead,
		models.ScopePaymentIntentsWrite})
	v := c.signedIn(t)
	const missing = "this API client lacks their scopes"
	v.open("/console").expect(200, missing, c.id)
	v.open(c.page("")).expect(200, missing, "Latest payments")
	one := v.submit(c.page("/payments"), "amount", "5").expect(303).to()
	v.open(one).expect(200, missing, "data:image/png")
	v.open(c.page("/payments")).expect(200, "AUD\u00a00.05").lacks(missing)
	for _, path := range []string{c.page("/customers"), c.page("/batches"), "/console/webhooks", "/console/receiver"} {
		v.open(path).expect(403, "The API answered 403", "auth:insufficient-scope")
	}
	v.open(c.page("/payments"))
	v.submit(c.page("/customers"), "customerReference", "ada").expect(403, "auth:insufficient-scope")
	v.open("/console/requests").expect(200)
	v.open("/console/clock").expect(200)
}
