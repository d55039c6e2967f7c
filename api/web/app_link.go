package web

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
)

// AppLink is a pattern of deep links that open the customer app at the path of a page. The zero
// AppLink makes no links.
type AppLink struct{ before, after string }

// appLinkPath is the placeholder of the path in the text of an AppLink.
const appLinkPath = "{path}"

// ErrAppLink is wrapped by the errors of ParseAppLink.
var ErrAppLink = errors.New("web: app link")

// ParseAppLink parses a pattern such as "https://app.example/{path}" or "example-app://{path}". A
// pattern is a URL that contains {path} exactly once, in place of the path of a page ("signup/…").
// ParseAppLink refuses schemes such as javascript and file. It parses an empty text as the zero
// AppLink. Errors wrap ErrAppLink.
func ParseAppLink(text string) (AppLink, error) {
	if text == "" {
		return AppLink{}, nil
	}
	before, after, ok := strings.Cut(text, appLinkPath)
	if !ok || strings.Contains(after, appLinkPath) {
		return AppLink{}, fmt.Errorf("%w: must have %s in it once", ErrAppLink, appLinkPath)
	}
	u, err := url.Parse(before + "signup/x" + after)
	if err != nil || u.Scheme == "" || strings.ContainsAny(text, " \"'<>`\\") {
		return AppLink{}, fmt.Errorf("%w: must be a URL with a scheme", ErrAppLink)
	}
	if slices.Contains([]string{"javascript", "data", "vbscript", "file", "blob", "about"}, u.Scheme) {
		return AppLink{}, fmt.Errorf("%w: scheme %s", ErrAppLink, u.Scheme)
	}
	return AppLink{before, after}, nil
}

// String returns the text that ParseAppLink parsed.
func (l AppLink) String() string {
	if l == (AppLink{}) {
		return ""
	}
	return l.before + appLinkPath + l.after
}

// to returns the deep link for a path that needs no escaping, "" for the zero AppLink.
func (l AppLink) to(path string) template.URL {
	if l == (AppLink{}) {
		return ""
	}
	return template.URL(l.before + path + l.after) //nolint:gosec // the scheme was checked when it was parsed
}
