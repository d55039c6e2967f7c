package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/ratelimit"
)

const version = "Svc-Api-Version"

// Each step mends the fault that was answered; the next one must then show.
func TestOrderOfChecks(t *testing.T) {
	g := newTestServer(t, nil)
	g.limiter.set(ratelimit.Decision{RetryAfter: 1500 * time.Millisecond})
	c := g.With("Authorization", "Bearer nonsense").With(version, "v0").With("Content-Type", "text/plain").
		With("Content-Encoding", "gzip")
	foreign := "/billing/sites/" + otherSite.String() + "/batches"
	c.Post(foreign+"/nothing/here?x=1", "{").Refused(404, "requests:not-found")
	c.Send("PUT", foreign+"?x=1", "{").Refused(405, "requests:method-not-allowed")
	c.Post(foreign+"?x=1", "{").Refused(401, "auth:invalid-token")
	c = c.WithToken("narrow")
	c.Post(foreign+"?x=1", "{").Refused(429, "requests:rate-limited")
	g.limiter.set(ratelimit.Decision{Allowed: true})
	c.Post(foreign+"?x=1", "{").Refused(403, "auth:insufficient-scope")
	c = c.WithToken("full")
	c.Post(foreign+"?x=1", "{").Refused(403, "sites:site-not-accessible siteId")
	own := site("/batches")
	c.Post(own+"?x=1", "{").Refused(400, "requests:unsupported-api-version Svc-Api-Version")
	c = c.With(version, api.APIVersion)
	c.Post(own+"?x=1", "{").Refused(415, "requests:unsupported-media-type Content-Encoding")
	c = c.With("Content-Encoding", "identity")
	c.Post(own+"?x=1", "{").Refused(415, "requests:unsupported-media-type Content-Type")
	c = c.With("Content-Type", "application/json")
	c.Post(own+"?x=1", "{").Refused(400, "batches:invalid-parameter x")
	c.Post(own, "{").Refused(400, "requests:malformed-json")
	c.Post(own, "{}").Refused(400, "batches:missing-field batchReference", "batches:missing-field amount")
	c.Post(own, `{"batchReference":"b","amount":13}`).Refused(409, "batches:batch-reference-conflict batchReference")
	c.Post(own, `{"batchReference":"b","amount":1}`).Expect(202)
}

func TestTokens(t *testing.T) {
	g := newTestServer(t, nil)
	get := func(authorization ...string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: x\r\n", site("/batches/b"))
		for _, a := range authorization {
			fmt.Fprintf(&b, "Authorization: %s\r\n", a)
		}
		return b.String() + "\r\n"
	}
	for name, c := range map[string]struct {
		request, challenge string
	}{
		"no header":    {get(), "Bearer"},
		"empty header": {get(""), "Bearer"},
		"other scheme": {get("Basic eDp5"), "Bearer"},
		"garbage":      {get("Bearer garbage"), `Bearer error="invalid_token"`},
		"two headers":  {get("Bearer full", "Bearer full"), `Bearer error="invalid_token"`},
	} {
		t.Run(name, func(t *testing.T) {
			answers := g.For(t).Raw(c.request, "GET", site("/batches/b"), 1)
			answers[0].Refused(401, "auth:invalid-token")
			if got := answers[0].Header.Get("WWW-Authenticate"); got != c.challenge {
				t.Errorf("challenge %s, want %s", got, c.challenge)
			}
		})
	}
	g.WithToken("unavailable").Get(site("/batches/b")).Refused(503, "requests:unavailable")
}

func TestScopes(t *testing.T) {
	g := newTestServer(t, nil)
	for _, token := range []string{"narrow", "app", "mixed"} {
		a := g.WithToken(token).Get(site("/batches/b")).Refused(403, "auth:insufficient-scope")
		if got, want := a.Header.Get("WWW-Authenticate"),
			`Bearer error="insufficient_scope", scope="billing:batches:read"`; got != want {
			t.Errorf("%s: challenge %s, want %s", token, got, want)
		}
	}
	g.WithToken("app").Post("/customer-app/links/x/revocation", nil).Expect(200)
	g.Post("/customer-app/links/x/revocation", nil).Refused(403, "auth:insufficient-scope")
}

func TestForeignSiteLooksMissing(t *testing.T) {
	g := newTestServer(t, nil)
	var first string
	for _, id := range []string{otherSite.String(), "site_01932c07-0000-7000-8000-00000000dead", "x", "%ff",
		"%", "a%2Fb",
		strings.ToUpper(ownSite.String()), ownSite.String() + "%20", strings.Repeat("a", 4000)} {
		a := g.Get("/billing/sites/"+id+"/batches/b").Refused(403, "sites:site-not-accessible siteId")
		body := strings.Replace(string(a.Body), a.TraceID(), "", 1)
		if first == "" {
			first = body
		}
		if body != first {
			t.Errorf("%.60s: %s, but elsewhere %s", id, body, first)
		}
	}
	g.Get("/billing/sites/" + strings.Replace(ownSite.String(), "s", "%73", 1) + "/batches/b").Expect(200)
}

func TestVersionHeader(t *testing.T) {
	g := newTestServer(t, nil)
	required, optional := site("/customers"), site("/batches/b")
	fault := "requests:unsupported-api-version Svc-Api-Version"
	g.Get(required).Refused(400, fault)
	g.Get(optional).Expect(200)
	for _, wrong := range []string{"", "v1", "urn:svc:api:billing:version:v2", "URN:SVC:API:BILLING:VERSION:V1"} {
		g.With(version, wrong).Get(required).Refused(400, fault)
		g.With(version, wrong).Get(optional).Refused(400, fault)
		g.With(version, wrong).Post(checkout("/payment-intent"), `{"amount":1}`).Expect(201)
	}
	g.With(version, api.APIVersion).Get(required).Expect(200)
	for _, path := range []string{required, optional, "/billing/nothing", "/billing"} {
		if got := g.Get(path).Header.Get(version); got != api.APIVersion {
			t.Errorf("%s answers version %q", path, got)
		}
	}
	if got := g.Post(checkout("/payment-intent"), `{"amount":1}`).Header.Get(version); got != "" {
		t.Errorf("checkout answers version %q", got)
	}
}

func TestRateLimitHeaders(t *testing.T) {
	g := newTestServer(t, nil)
	g.limiter.set(ratelimit.Decision{Allowed: true, Limits: []ratelimit.Limit{
		{Name: "default", Quota: 200, Window: 2 * time.Second, Remaining: 150, Reset: 300 * time.Millisecond},
		{Name: "batches", Quota: 5, Window: time.Second, Remaining: 5},
	}})
	for _, path := range []string{site("/batches/b"), "/billing/sites/x/batches/b"} {
		h := g.Get(path).Header
		if got, want := h.Get("RateLimit-Policy"), `"default";q=200;w=2, "batches";q=5;w=1`; got != want {
			t.Errorf("%s: policy %s, want %s", path, got, want)
		}
		if got, want := h.Get("RateLimit"), `"default";r=150;t=1, "batches";r=5;t=0`; got != want {
			t.Errorf("%s: limits %s, want %s", path, got, want)
		}
	}
	g.limiter.set(ratelimit.Decision{RetryAfter: 1001 * time.Millisecond,
		Limits: []ratelimit.Limit{{Name: "default", Quota: 1, Window: time.Second}}})
	a := g.Post(site("/batches"), `{}`).Refused(429, "requests:rate-limited")
	if a.Header.Get("Retry-After") != "2" || a.Header.Get("RateLimit") != `"default";r=0;t=0` {
		t.Errorf("headers %v", a.Header)
	}
	g.With("Authorization", "").Get(site("/batches/b")).Expect(401)
	want := []ratelimit.Class{ratelimit.Default, ratelimit.Default, ratelimit.Batches}
	if diff := cmp.Diff(want, g.limiter.classes); diff != "" {
		t.Error(diff)
	}
}

func TestQueryParameters(t *testing.T) {
	g := newTestServer(t, nil)
	c := g.With(version, api.APIVersion)
	for query, want := range map[string][]string{
		"":                      nil,
		"limit=5&state=a+b%2Bc": nil,
		"state=":                nil,
		"&limit=1&":             nil,
		"cursor=abc":            nil,
		"limit=0":               {"customers:invalid-parameter limit"},
		"limit=101":             {"customers:invalid-parameter limit"},
		"limit=":                {"customers:invalid-parameter limit"},
		"limit":                 {"customers:invalid-parameter limit"},
		"limit=%2B5":            {"customers:invalid-parameter limit"},
		"limit=05":              {"customers:invalid-parameter limit"},
		"limit=1.0":             {"customers:invalid-parameter limit"},
		"limit=1&limit=1":       {"customers:invalid-parameter limit"},
		"limit=0&limit=0":       {"customers:invalid-parameter limit"},
		"other=1&limit=0":       {"customers:invalid-parameter other", "customers:invalid-parameter limit"},
		"limit=0&state=%zz":     {"customers:invalid-parameter state", "customers:invalid-parameter limit"},
		"other=1&state=a":       {"customers:invalid-parameter other"},
		"Limit=1":               {"customers:invalid-parameter Limit"},
		"a=1&limit=1&limit=2&b": {"customers:invalid-parameter a", "customers:invalid-parameter limit",
			"customers:invalid-parameter b"},
		"state=%zz":              {"customers:invalid-parameter state"},
		"state=%ff":              {"customers:invalid-parameter state"},
		"%ff=1":                  {"customers:invalid-parameter ?"},
		"=1":                     {"customers:invalid-parameter"},
		"cursor=abc&limit=1":     {"customers:invalid-pagination-link nextHref"},
		"cursor=abc&cursor=abc":  {"customers:invalid-pagination-link nextHref"},
		"cursor=abc&other=1":     {"customers:invalid-pagination-link nextHref"},
		"cursor=abc&state=%zz":   {"customers:invalid-pagination-link nextHref"},
		"limit%3D1":              {"customers:invalid-parameter limit=1"},
		strings.Repeat("x", 300): {"customers:invalid-parameter " + strings.Repeat("x", 64) + "…"},
	} {
		t.Run(query, func(t *testing.T) {
			a := c.For(t).Get(site("/customers?" + query))
			if want == nil {
				a.Expect(200)
			} else {
				a.Refused(400, want...)
			}
		})
	}
	var data struct {
		State, Cursor, Site string
		Limit               int
	}
	c.Get(site("/customers?limit=5&state=a+b%2Bc%26")).Data(&data)
	if data.State != "a b+c&" || data.Limit != 5 || data.Site != ownSite.String() {
		t.Errorf("decoded %+v", data)
	}
	g.Get(site("/batches/b?cursor=x")).Refused(400, "batches:invalid-parameter cursor")
	g.Post(checkout("/payment-intent?x=1&y=2"), `{"amount":1}`).Expect(400)
	if a := g.Post(checkout("/payment-intent?=1"), `{"amount":1}`).
		Expect(400); !strings.Contains(string(a.Body), `"an empty name is not a parameter`) {
		t.Errorf("%s", a.Body)
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("p%d=1", i)
	}
	if n := len(c.Get(site("/customers?" + strings.Join(many, "&"))).Expect(400).Faults()); n != 100 {
		t.Errorf("%d faults listed", n)
	}
}

func TestIdempotencyKey(t *testing.T) {
	g := newTestServer(t, nil)
	path := checkout("/payment-intent")
	var data struct{ Key string }
	for _, key := range []string{"k", strings.Repeat("~", 255), `"quoted"`} {
		if g.With("Idempotency-Key", key).Post(path, `{"amount":1}`).Expect(201).Data(&data); data.Key != key {
			t.Errorf("key %q became %q", key, data.Key)
		}
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "a b", "é"} {
		a := g.With("Idempotency-Key", key).Post(path, `{"amount":1}`).Expect(400)
		if m := a.Faults()[0].Message; !strings.HasPrefix(m, "Idempotency-Key ") {
			t.Errorf("%q: %s", key, m)
		}
	}
}

func TestPathParameters(t *testing.T) {
	g := newTestServer(t, nil)
	var data struct {
		BatchReference string
		Wait           int
	}
	for raw, want := range map[string]string{
		"2026%2F11%20%237+%C3%A9":           "2026/11 #7+é",
		"a%2Fb":                             "a/b",
		"%252F":                             "%2F",
		"+":                                 "+",
		"%2B":                               "+",
		"a%3Fb":                             "a?b",
		"%25":                               "%",
		"%F0%9F%98%80":                      "😀",
		"e%CC%81":                           "e\u0301",
		"a;b,c:d@e&f=g$h!'()*~":             "a;b,c:d@e&f=g$h!'()*~",
		"...":                               "...",
		"%5C..%5C":                          `\..\`,
		"rows":                              "rows",
		strings.Repeat("%C3%A9", 128):       strings.Repeat("é", 128),
		strings.Repeat("%F0%9F%98%80", 128): strings.Repeat("😀", 128),
	} {
		for _, suffix := range []string{"", "/rows"} {
			if g.Get(site("/batches/" + raw + suffix)).Expect(200).Data(&data); data.BatchReference != want {
				t.Errorf("%.60s%s became %q, want %q", raw, suffix, data.BatchReference, want)
			}
		}
		if back := api.PathOf("x", want); back != "/x/"+raw && !strings.HasSuffix(raw, "~") && raw != "%2B" {
			var again struct {
				BatchReference string
				Wait           int
			}
			if g.Get(site(strings.Replace(back, "/x/", "/batches/", 1))).Expect(200).
				Data(&again); again.BatchReference != want {
				t.Errorf("%q written as %q comes back as %q", want, back, again.BatchReference)
			}
		}
	}
	for _, raw := range []string{"%", "%2", "%zz", "%ff", "%C3", "%ED%A0%80", "%00", "%0A", "%7F", "%C2%85", ".", "..",
		"%2E", "%2e%2E",
		strings.Repeat("a", 129), strings.Repeat("%C3%A9", 129)} {
		g.Get(site("/batches/"+raw)).Refused(404, "batches:batch-not-found batchReference")
	}
	g.Get(site("/batches/")).Refused(404, "requests:not-found")
	g.Get(site("/batches//rows")).Refused(404, "requests:not-found")
}

func TestRouting(t *testing.T) {
	g := newTestServer(t, nil)
	one := site("/batches/b")
	for _, path := range []string{"/", "/Billing" + one[8:], one + "/", one + "//rows", one + "/rows/", "/" + one,
		one + "/x",
		"/billing", "/billing/", strings.Replace(one, "/batches", "/%62atches", 1), "/nothing?x=1",
		strings.Replace(one, "/billing", "/billing/../billing", 1)} {
		g.With("Authorization", "").Get(path).Refused(404, "requests:not-found")
	}
	for _, path := range []string{"/checkout", "/checkout/x", "/checkout/x/payment-intent/"} {
		if f := g.Get(path).Expect(404).Faults(); f[0].Code != "" || f[0].Message == "" {
			t.Errorf("%s: %v is not of Shape B", path, f)
		}
	}
	g.Get("/checkouts").Refused(404, "requests:not-found")
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get", "POST"} {
		a := g.Send(method, one, nil).Refused(405, "requests:method-not-allowed")
		if got := a.Header.Get("Allow"); got != "GET, HEAD" {
			t.Errorf("%s: Allow %q", method, got)
		}
		g.Send(method, "/nothing", nil).Refused(404, "requests:not-found")
	}
	a := g.Get(checkout("/payment-intent")).Expect(405)
	if f := a.Faults(); f[0].Code != "" || a.Header.Get("Allow") != "POST" {
		t.Errorf("%v %v", f, a.Header)
	}
	g.Get(site("/batches")).Refused(405, "requests:method-not-allowed")
}

func TestHead(t *testing.T) {
	g := newTestServer(t, nil)
	for path, status := range map[string]int{site("/batches/b"): 200, site("/batches/%00"): 404, "/nothing": 404,
		site("/batches"): 405} {
		get, head := g.Get(path), g.Send("HEAD", path, nil)
		if head.Status != status || len(head.Body) != 0 {
			t.Errorf("%s: status %d, %d bytes", path, head.Status, len(head.Body))
		}
		if head.Header.Get("Content-Type") != get.Header.Get("Content-Type") ||
			head.Header.Get("Content-Length") != get.Header.Get("Content-Length") {
			t.Errorf("%s: HEAD %v, GET %v", path, head.Header, get.Header)
		}
	}
	g.With("Authorization", "").Send("HEAD", site("/batches/b"), nil).Expect(401)
}

// Several Prefer headers are one list.
func TestPreferWaitInSeveralHeaders(t *testing.T) {
	g := newTestServer(t, nil)
	head := "GET " + site("/batches/b") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"
	for headers, want := range map[string]int{
		"Prefer: respond-async\r\nPrefer: wait=3\r\n": 3000,
		"prefer: wait=1\r\nPREFER: wait=3\r\n":        1000,
	} {
		var data struct {
			BatchReference string
			Wait           int
		}
		if g.Raw(head+headers+"\r\n", "GET", site("/batches/b"), 1)[0].Expect(200).Data(&data); data.Wait != want {
			t.Errorf("%q waits %d ms, want %d", headers, data.Wait, want)
		}
	}
}

func TestPreferWait(t *testing.T) {
	g := newTestServer(t, nil)
	for header, want := range map[string]int{
		"wait=5": 5000, "Wait=5": 5000, "wait = 7": 7000, `wait="9"`: 9000, "respond-async, wait=3;x=y": 3000,
		`wait="5"`: 5000, `foo="a, wait=3", wait=4`: 4000, `foo="a\", wait=3", wait=4`: 4000,
		`foo="a;b";c, wait=4`: 4000, `handling=strict, WAIT=6`: 6000,
		"foo; wait=3": 0, "foo; wait=3, wait=4": 4000, `wait="1\0"`: 10000, `wait="5`: 0, `wait=5"`: 0,
		"wait=2, wait=9": 2000, "wait=x, wait=9": 0, ",,wait=2": 2000,
		"\twait\t=\t2\t": 2000, "wait=+5": 0, "wait=": 0, `wait=""`: 0, "x-wait=5": 0, `foo="wait=5"`: 0, "=5": 0,
		"wait=31": 30000, "wait=99999999999999999999999": 30000, "wait=0": 0, "wait=-1": 0, "wait=x": 0, "wait": 0,
		"waits=5": 0, "wait=1.5": 0,
	} {
		var data struct {
			BatchReference string
			Wait           int
		}
		if g.With("Prefer", header).Get(site("/batches/b")).Data(&data); data.Wait != want {
			t.Errorf("Prefer: %s waits %d ms, want %d", header, data.Wait, want)
		}
	}
}
