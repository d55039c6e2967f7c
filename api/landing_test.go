package api_test

import (
	"strings"
	"testing"

	"partnerbilling/api"
)

func TestLandingPage(t *testing.T) {
	t.Parallel()
	for name, sandbox := range map[string]*api.Sandbox{"Sandbox": {}, "Production": nil} {
		b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = sandbox })
		page := b.Get("/?utm_source=x")
		checkPage(t, page, 200, "<h1>Partner Billing and Checkout</h1>", "<dd>"+name+"</dd>", `href="/docs"`,
			`href="/openapi.json"`)
		if strings.Contains(string(page.Body), "No money moves") != (sandbox != nil) {
			t.Errorf("%s: %s", name, page.Body)
		}
		b.Send("HEAD", "/", nil).Expect(200)
		b.Post("/", nil).Refused(405, "requests:method-not-allowed")
		for _, path := range []string{"//", "///", "//?x=1", "//livez", "//x/livez", "//x//livez", "///livez",
			"//" + strings.TrimPrefix(publicURL, "https://") + "/docs", "//checkout/x"} {
			b.RawUnchecked("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 1)[0].Refused(404, "requests:not-found")
		}
	}
}

// At an unknown path, browsers get a page and API clients get JSON.
func TestNotFoundForPeople(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	for accept, isPage := range map[string]bool{
		"text/html": true, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
		"application/json, TEXT/HTML ;q=0.1": true,
		"text/html;level=1":                  true, `x/y;a="b,c", text/html`: true, "text/html;q=1.0": true,
		"": false, "*/*": false, "application/json": false, "text/*": false, "text/html;q=0": false,
		"text/html; Q=0.000": false,
		`x/y;a="text/html"`:  false, "text/htmlx": false, "xtext/html": false, "text": false,
	} {
		browser := b.With("Accept", accept)
		for _, path := range []string{"/nothing", "/P", "/signup/", "/docs/x", "/Billing", "/billings",
			"/.well-known/x"} {
			if a := browser.Get(path).Expect(404); !isPage {
				a.Refused(404, "requests:not-found")
			} else {
				checkPage(t, a, 404, "There is nothing at this address", `href="/"`)
			}
		}
		for _, path := range []string{"/billing", "/billing/x", "/webhooks", "/webhooks/x", "/oauth2", "/oauth2/x",
			"/customer-app/x", "/sandbox", "/traces", "/traces/x/y"} {
			browser.Get(path).Refused(404, "requests:not-found")
		}
		if f := browser.Get("/checkout/x").Expect(404).Faults(); len(f) != 1 || f[0].Code != "" {
			t.Errorf("%s: %+v", accept, f)
		}
		if a := browser.Send("HEAD", "/nothing", nil).
			Expect(404); strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") != isPage {
			t.Errorf("%s: HEAD %v", accept, a.Header)
		}
		browser.Post("/docs", nil).Refused(405, "requests:method-not-allowed")
	}
}
