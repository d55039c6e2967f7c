package models_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/models"
)

// An id has one spelling.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"site_01932c07-0000-7000-8000-000000000002", "site_",
		"org_01932c07-0000-7000-8000-000000000002",
		"site_01932C07-0000-7000-8000-000000000002", "site_urn:uuid:01932c07-0000-7000-8000-000000000002"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var id models.SiteID
		switch err := id.UnmarshalText([]byte(text)); {
		case err == nil && id.String() != text:
			t.Errorf("%q is another spelling of %s", text, id)
		case err != nil && (!errors.Is(err, models.ErrInvalidID) || !id.IsZero()):
			t.Errorf("%q: %v, %s", text, err, id)
		}
	})
}

// A position of a stream, which Last-Event-ID repeats, has one spelling.
func FuzzParseWebhookStreamPosition(f *testing.F) {
	for _, seed := range []string{"evt_01932c07-0000-7000-8000-000000000002:5",
		"evt_01932c07-0000-7000-8000-000000000002:05",
		":", "evt_01932c07-0000-7000-8000-000000000002:18446744073709551616",
		"evt_01932c07-0000-7000-8000-000000000002:5:6"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		position, err := models.ParseWebhookStreamPosition(text)
		switch {
		case err == nil && position.String() != text:
			t.Errorf("%q is another spelling of %s", text, position)
		case err != nil && (!errors.Is(err, models.ErrInvalidID) || position != models.WebhookStreamPosition{}):
			t.Errorf("%q: %v, %s", text, err, position)
		}
	})
}

// An accepted return URL is a link to a web page, whichever way it is read.
func FuzzReturnURL(f *testing.F) {
	for _, seed := range []string{"https://shop.example/x?y=1#z", "http://localhost:3000/",
		"javascript:alert(1)", "https://a@b/",
		"https://[::1%25eth0]/", "//x", "https:x", "https://x\\@y/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if models.CheckReturnURL(raw, true) != nil {
			if models.CheckReturnURL(raw, false) == nil {
				t.Errorf("%q is refused only by the sandbox", raw)
			}
			return
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
			strings.ContainsAny(raw, "\"<>\\ \n\t") {
			t.Fatalf("%q: %v, %v", raw, u, err)
		}
		if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host {
			t.Errorf("%q is read as %s the second time: %v", raw, again, err)
		}
	})
}

// Both checks of text refuse what is not UTF-8 or deceives, and a reference passes as a text.
func FuzzValidateReference(f *testing.F) {
	for _, seed := range []string{"a", ".", "a\xff", "\u202e", "\x00", strings.Repeat("é", 129)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if models.ValidateReference(text) != nil {
			return
		}
		if err := errors.Join(models.ValidateText(text), models.ValidateLabel(text)); err != nil || text == "" ||
			strings.ToValidUTF8(text, "") != text || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q is a reference: %v", text, err)
		}
		if decoded, err := url.PathUnescape(url.PathEscape(text)); err != nil || decoded != text {
			t.Errorf("%q is %q in a path: %v", text, decoded, err)
		}
	})
}
