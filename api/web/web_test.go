package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"regexp"
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

// hueRule matches the accent of a partner's pages in the style.
var hueRule = regexp.MustCompile(`\.hue(\d)\{--accent:#([0-9a-f]{6})\}`)

// Each colour of a partner's pages is readable: as the ground of a button's label, and as text on a
// card. WCAG 2.2 asks for a contrast of 4.5.
func TestHuesAreReadable(t *testing.T) {
	body, err := web.Payment{State: web.PaymentOpen}.Render()
	check(t, err)
	rules := hueRule.FindAllStringSubmatch(string(body), -1)
	if len(rules) != 12 { // six in light and six in dark
		t.Fatalf("the style has %d colours", len(rules))
	}
	for i, rule := range rules {
		against := []string{"ffffff"} // the label and the card in light
		if i >= len(rules)/2 {
			against = []string{"0d1a2a", "18202a"}
		}
		for _, other := range against {
			a, b := luminance(t, rule[2]), luminance(t, other)
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("#%s on #%s: %.2f", rule[2], other, ratio)
			}
		}
	}
}

// luminance is the relative luminance of a colour, as WCAG defines it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	bytes, err := hex.DecodeString(colour)
	check(t, err)
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(bytes[i]) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkSafe(t *testing.T, body []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	page := withoutOwn(t, string(body), "script")
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

// withoutOwn removes the page's own style or script, which the policy must allow byte for byte as
// the browser reads it.
func withoutOwn(t *testing.T, page, element string) string {
	t.Helper()
	before, rest, found := strings.Cut(page, "<"+element+">")
	if !found {
		return page
	}
	own, after, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(own))
	want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if policy := web.Headers().Get("Content-Security-Policy"); len(own) < 100 || !strings.Contains(policy, want) {
		t.Errorf("the policy %q does not have %s", policy, want)
	}
	return before + after
}

func TestPolicyAllowsStyleAndScript(t *testing.T) {
	body, err := web.Payment{State: web.PaymentOpen}.Render()
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	for _, element := range []string{"style", "script"} {
		if withoutOwn(t, page, element) == page {
			t.Errorf("the page has no %s", element)
		}
	}
}
