package web

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
)

// AppLink is a deep link that opens the customer app at a page's path. The zero AppLink is no link.
type AppLink struct{ before, after string }

// appLinkPath is the placeholder of the path in an AppLink's text.
const appLinkPath = "{path}"

// ErrAppLink is wrapped by the errors of ParseAppLink.
var ErrAppLink = errors.New("web: app link")

// ParseAppLink parses a deep link such as "https://app.example/{path}" or "example-app://{path}".
// It is a URL that contains {path} exactly once, where a page inserts its own path ("signup/…"). An
// empty text is the zero AppLink.
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

// to returns the link for a path that needs no escaping, "" for the zero AppLink.
func (l AppLink) to(path string) template.URL {
	if l == (AppLink{}) {
		return ""
	}
	return template.URL(l.before + path + l.after) //nolint:gosec // the scheme was checked when it was parsed
}
