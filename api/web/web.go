// Package web renders the service's pages for people and supplies their security headers. The pages
// work without JavaScript and load nothing from other hosts.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
)

//go:embed *.html
var files embed.FS

// Palette defines the colours of every page, light and dark, as CSS variables.
//
//go:embed palette.css
var Palette string

//go:embed style.css
var ownStyle string

var style = Palette + ownStyle

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
}).ParseFS(files, "*.html"))

// ContentType is the Content-Type of every page.
const ContentType = "text/html;charset=UTF-8"

// policy lets a page use its own style and submit its own form, and forbids everything else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// Headers returns the headers of every page besides its Content-Type. A sign-up link is a secret.
// Caches must not keep its page, search engines must not list it, and other sites must not learn
// its address.
func Headers() http.Header {
	return http.Header{
		"Content-Security-Policy": {policy},
		"Cache-Control":           {"no-store"},
		"Referrer-Policy":         {"no-referrer"},
		"X-Frame-Options":         {"DENY"},
		"X-Robots-Tag":            {"noindex, nofollow"},
	}
}

// render executes a page's template.
func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Problem is an error page.
type Problem struct {
	Title   string
	Message string
	TraceID string // to quote to support; "" for none
	Home    bool   // shows a link to the root
}

// Render returns the page as HTML.
func (p Problem) Render() ([]byte, error) { return render("problem.html", p) }
