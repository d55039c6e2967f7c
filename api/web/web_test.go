package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/web"
)

func TestParseAppLink(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "https://app.example/{path}": true, "example-app://{path}": true,
		"https://app.example/?open={path}&x=1": true,
		"https://app.example/":                 false, "{path}": false, "/{path}": false,
		"https://a/{path}/{path}":  false,
		"javascript:alert({path})": false, "JavaScript:{path}": false, "data:text/html,{path}": false,
		`https://a/"{path}`: false, "https://a/ {path}": false,
	} {
		link, err := web.ParseAppLink(text)
		if (err == nil) != ok || err != nil && !errors.Is(err, web.ErrAppLink) {
			t.Errorf("%q: %v", text, err)
		}
		if ok && link.String() != text {
			t.Errorf("%q reads %q", text, link.String())
		}
	}
}

func hostedBy(name string, sandbox bool) web.Hosted {
	return web.Hosted{
		Organisation: name, Site: name, ExpiresAt: time.UnixMilli(0), Sandbox: sandbox, Complaint: name,
		Choices: []web.Choice{{Value: name, Label: name, Detail: name}},
	}
}

// Names come from partners and appear as text, never as markup.
func TestPagesEscapeNames(t *testing.T) {
	const evil = `</title><script>alert(1)</script>"'&`
	for _, state := range []web.SignupState{
		web.SignupOpen, web.SignupDeclined, web.SignupDone, web.SignupExpired, web.SignupRevoked,
	} {
		for _, sandbox := range []bool{true, false} {
			checkSafe(t, web.Signup{Hosted: hostedBy(evil, sandbox), State: state, Token: "t"})
		}
	}
	checkSafe(t, web.Problem{Title: evil, Message: evil, TraceID: evil})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkSafe(t *testing.T, rendered web.Page) {
	t.Helper()
	body, err := rendered.Render()
	check(t, err)
	page := withoutOwn(t, rendered.Headers(), string(body), "script")
	if strings.Contains(page, "<script") || strings.Count(page, "</title>") != 1 ||
		!strings.Contains(page, "&lt;script&gt;") {
		t.Error(page)
	}
	for _, outside := range []string{"http://", "https://", "ZgotmplZ", " src=", " onclick", "@import", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
}

// withoutOwn removes the page's own styles or script, which the policy of headers must allow byte
// for byte as the browser reads them.
func withoutOwn(t *testing.T, headers http.Header, page, element string) string {
	t.Helper()
	before, rest, found := strings.Cut(page, "<"+element+">")
	if !found {
		return page
	}
	own, after, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(own))
	want := " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	_, directive, _ := strings.Cut(headers.Get("Content-Security-Policy"), element+"-src")
	directive, _, _ = strings.Cut(directive, ";")
	if len(own) < 50 || !strings.Contains(directive, want) || strings.Contains(directive, "unsafe") {
		t.Errorf("the policy %q of %s does not have%s", directive, element, want)
	}
	return before + withoutOwn(t, headers, after, element)
}

// A page's policy allows its styles, that of the partner's colour included, and its script.
func TestPolicyAllowsStylesAndScript(t *testing.T) {
	coloured := web.Hosted{Colour: "#ffff99"}
	for _, tt := range []struct {
		page     web.Page
		elements []string
	}{
		{web.Payment{State: web.PaymentOpen}, []string{"style", "script"}},
		{web.Payment{Hosted: coloured, State: web.PaymentOpen}, []string{"style", "script"}},
		{web.Signup{Hosted: coloured}, []string{"style", "script"}},
		{web.Problem{}, []string{"style"}}, {web.Landing{}, []string{"style"}},
	} {
		body, err := tt.page.Render()
		check(t, err)
		for _, element := range tt.elements {
			if page := string(body); withoutOwn(t, tt.page.Headers(), page, element) == page {
				t.Errorf("%T has no %s", tt.page, element)
			}
		}
	}
}

func TestTimeElement(t *testing.T) {
	const layout = "2 Jan 2006 15:04:05"
	at := time.Date(2026, 11, 5, 4, 4, 5, 678e6, time.FixedZone("", 3600))
	if got := web.TimeElement(at, layout); got !=
		`<time datetime="2026-11-05T03:04:05.678Z">5 Nov 2026 03:04:05</time>` {
		t.Error(got)
	}
	if got := web.TimeElement(time.UnixMilli(0), layout); got != "–" {
		t.Error(got)
	}
}
