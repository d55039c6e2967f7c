package web

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
)

// AppLink is the deep link that opens the customer app, with a place for what it is about. The zero AppLink is none.
type AppLink struct{ before, after string }

// appLinkPlace stands in an AppLink's text for what the link is about.
const appLinkPlace = "{path}"

// ErrAppLink says what is wrong with an AppLink's text.
var ErrAppLink = errors.New("web: app link")

// ParseAppLink reads a deep link such as "https://app.example/{path}" or "example-app://{path}": a URL with {path} in
// it exactly once, where a page puts its own path ("signup/…"). An empty text is no link.
func ParseAppLink(text string) (AppLink, error) {
	if text == "" {
		return AppLink{}, nil
	}
	before, after, ok := strings.Cut(text, appLinkPlace)
	if !ok || strings.Contains(after, appLinkPlace) {
		return AppLink{}, fmt.Errorf("%w: must have %s in it once", ErrAppLink, appLinkPlace)
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

// String is the text that ParseAppLink takes.
func (l AppLink) String() string {
	if l == (AppLink{}) {
		return ""
	}
	return l.before + appLinkPlace + l.after
}

// to is the link for a path of safe characters; "" if there is no link.
func (l AppLink) to(path string) template.URL {
	if l == (AppLink{}) {
		return ""
	}
	return template.URL(l.before + path + l.after) //nolint:gosec // the scheme was checked when it was parsed
}
