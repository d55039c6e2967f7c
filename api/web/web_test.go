package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
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
			body, err := web.Signup{Hosted: hostedBy(evil, sandbox), State: state, Token: "t"}.Render()
			checkSafe(t, body, err)
		}
	}
	body, err := web.Problem{Title: evil, Message: evil, TraceID: evil}.Render()
	checkSafe(t, body, err)
}

func checkSafe(t *testing.T, body []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
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

// The policy allows the page's own style, byte for byte as the browser reads it.
func TestPolicyAllowsTheStyle(t *testing.T) {
	body, err := web.Problem{Title: "t", Message: "m"}.Render()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(body), "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if policy := web.Headers().Get("Content-Security-Policy"); len(style) < 100 || !strings.Contains(policy, want) {
		t.Errorf("the policy %q does not have %s", policy, want)
	}
}
