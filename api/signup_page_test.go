package api_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// browser returns a client that sends forms like a browser.
func (b *billing) browser() *apitest.Client {
	return b.WithToken("none").With("Content-Type", "application/x-www-form-urlencoded")
}

func checkPage(t *testing.T, a *apitest.Answer, status int, texts ...string) {
	t.Helper()
	a.Expect(status)
	for _, text := range texts {
		if !strings.Contains(string(a.Body), text) {
			t.Errorf("the page does not say %q:\n%s", text, a.Body)
		}
	}
	for name, values := range web.Headers() {
		if got := a.Header.Get(name); got != values[0] && name != "Content-Security-Policy" {
			t.Errorf("%s: %q", name, got)
		}
	}
	checkPolicy(t, a)
	if got := a.Header.Get("Content-Type"); got != web.ContentType {
		t.Errorf("content type %q", got)
	}
}

// inlineStyle matches a style sheet of a page.
var inlineStyle = regexp.MustCompile(`(?s)<style>(.*?)</style>`)

// checkPolicy checks that the answer's policy allows the page's style sheets and no others.
func checkPolicy(t *testing.T, a *apitest.Answer) {
	t.Helper()
	want := "default-src 'none'; style-src"
	for _, style := range inlineStyle.FindAllSubmatch(a.Body, -1) {
		sum := sha256.Sum256(style[1])
		want += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	if got := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, want+"; script-src 'sha256-") {
		t.Errorf("the policy %q does not begin with %q", got, want)
	}
}

// The hosted pages have the colour of their organisation at once, and never that of another.
func TestPagesHaveThePartnersColour(t *testing.T) {
	c := newPaying(t)
	_, code := c.intent(t)
	paths := []string{c.invite(t, "r"), "/P/" + code}
	for _, colour := range []models.Colour{"#ffff99", "#101010", ""} {
		c.colour(t, colour)
		for _, path := range paths {
			page := c.Get(path)
			checkPage(t, page, 200, "--brand:"+cmp.Or(string(colour), "#"))
		}
	}
	var brands []string
	for _, path := range paths {
		brands = append(brands, brandRule.FindString(string(c.Get(path).Body)))
	}
	if brands[0] == "" || brands[0] != brands[1] {
		t.Errorf("the pages of one partner have the colours %q", brands)
	}
}

// brandRule matches the partner's colour in a page.
var brandRule = regexp.MustCompile(`--brand:#[0-9a-f]{6}`)

// colour sets the colour of the Site's organisation.
func (b *billing) colour(t testing.TB, colour models.Colour) {
	t.Helper()
	site, err := b.store.AnySite(t.Context(), b.site)
	if err == nil {
		err = b.store.SetOrganisationColour(t.Context(), site.OrganisationID, colour)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSignupPage(t *testing.T) {
	b := newBilling(t, nil)
	path := b.invite(t, "secret-reference")
	for range 3 {
		page := b.Get(path)
		checkPage(t, page, 200, "Harbour Power", "North Quay", "Monday 28 September 2026", "<form", "Sandbox")
		if strings.Contains(string(page.Body), "secret") {
			t.Errorf("the page names the customer:\n%s", page.Body)
		}
		b.Send(http.MethodHead, path, nil).Expect(200)
		b.Get(path + "?utm_source=mail&x=%zz").Expect(200)
	}
	if got := b.state("secret-reference"); got != "invited" {
		t.Fatalf("looking at the page made it %s", got)
	}
	checkPage(t, b.browser().Post(path, "action=decline"), 200, "You have not signed up", path)
	if got := b.state("secret-reference"); got != "invited" {
		t.Fatalf("declining made it %s", got)
	}
	for _, form := range []string{"", "action=accept", "action=accept&behaviour=no", "action=no&behaviour=pays", "%zz",
		"action=accept&behaviour=%zz"} {
		checkPage(t, b.browser().Post(path, form), 400, "Choose how the account should behave", "<form")
	}
	done := b.browser().Post(path, "action=accept&behaviour=bankDown").Expect(303)
	if got := done.Header.Get("Location"); got != path {
		t.Errorf("it leads to %q", got)
	}
	checkPage(t, b.Get(path), 200, "You are signed up", "Harbour Power")
	// the form is sent twice
	checkPage(t, b.browser().Post(path, "action=accept&behaviour=pays"), 200, "You are signed up")
	if got := b.state("secret-reference"); got != "linked" {
		t.Fatalf("signing up made it %s", got)
	}
	var behaviour string
	err := b.store.DB().QueryRowContext(t.Context(), `
		SELECT behaviour FROM sandbox_accounts`).Scan(&behaviour)
	if err != nil || behaviour != string(models.BehaviourBankDown) {
		t.Errorf("the account: %q, %v", behaviour, err)
	}
	b.Post(b.customer("secret-reference", "/revocation"), nil).Expect(200)
	checkPage(t, b.Get(path), 410, "withdrawn")

	path = b.invite(t, "secret-reference")
	b.advance(t, week)
	checkPage(t, b.Get(path), 410, "has expired")
	checkPage(t, b.browser().Post(path, "action=accept&behaviour=pays"), 410, "has expired")
}

func TestSignupPageErrors(t *testing.T) {
	b := newBilling(t, nil)
	path := b.invite(t, "r")
	for _, path := range []string{"/signup/x", path + "A", path[:len(path)-1], "/signup/%ff", "/signup/%3Cscript%3E"} {
		checkPage(t, b.Get(path), 404, "We do not know this link")
		checkPage(t, b.browser().Post(path, "action=accept&behaviour=pays"), 404, "We do not know this link")
	}
	checkPage(t, b.Post(path, `{"action":"accept"}`), 415)
	checkPage(t, b.browser().Post(path, strings.Repeat("a", 65<<10)), 413)
	b.Send(http.MethodDelete, path, nil).Refused(405, "requests:method-not-allowed")
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	broken := b.Get(path)
	checkPage(t, broken, broken.Status, "Something went wrong")
	if broken.Status < 500 || strings.Contains(string(broken.Body), "sql") {
		t.Errorf("status %d: %s", broken.Status, broken.Body)
	}
}

// A form from a foreign page is refused. A form without an origin is accepted, because the token in
// the path authorises.
func TestSignupPageRefusesForeignForms(t *testing.T) {
	b := newBilling(t, nil)
	path := b.invite(t, "r")
	for _, from := range []struct {
		name, value string
		status      int
	}{
		{"Sec-Fetch-Site", "cross-site", 400}, {"Sec-Fetch-Site", "same-site", 400},
		{"Origin", "https://evil.example", 400},
		{"Origin", publicURL + ".evil.example", 400}, {"Sec-Fetch-Site", "same-origin", 200}, {"Origin", "null", 200},
		{"Origin", publicURL, 200},
	} {
		got := b.browser().With(from.name, from.value).Post(path, url.Values{"action": {"decline"}}.Encode())
		if got.Status != from.status {
			t.Errorf("%s: %s: status %d, want %d", from.name, from.value, got.Status, from.status)
		}
	}
}

func TestSignupPageInProduction(t *testing.T) {
	b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox, cfg.AppLink = nil, appLink(t) })
	path := b.invite(t, "r")
	page := b.Get(path)
	checkPage(t, page, 200, `href="https://app.example/open`+path+`"`, "Continue in the app")
	if body := string(page.Body); strings.Contains(body, "<form") || strings.Contains(body, "Sandbox") {
		t.Errorf("the page plays the app:\n%s", body)
	}
	b.browser().Post(path, "action=accept&behaviour=pays").Refused(405, "requests:method-not-allowed")
	if got := b.state("r"); got != "invited" {
		t.Errorf("it is %s", got)
	}
	bare := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	checkPage(t, bare.Get(bare.invite(t, "r")), 200, "Open this link on the phone")
}
