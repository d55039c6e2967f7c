// Package web holds the pages that the service shows to people: what they look like, and the headers that keep them
// safe. They work without JavaScript, and load nothing from anywhere.
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

// Palette is the colours of every page, light and dark, as CSS variables.
//
//go:embed palette.css
var Palette string

//go:embed style.css
var ownStyle string

var style = Palette + ownStyle

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
}).ParseFS(files, "*.html"))

// ContentType is that of every page.
const ContentType = "text/html;charset=UTF-8"

// policy lets a page use its own style, send its own form, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// Headers are those of every page beside its Content-Type. A sign-up link is a secret, so no cache keeps its page, no
// search engine lists it, and no other site learns its address.
func Headers() http.Header {
	return http.Header{
		"Content-Security-Policy": {policy},
		"Cache-Control":           {"no-store"},
		"Referrer-Policy":         {"no-referrer"},
		"X-Frame-Options":         {"DENY"},
		"X-Robots-Tag":            {"noindex, nofollow"},
	}
}

// render fills in a page.
func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Problem is a page that says that something did not work.
type Problem struct {
	Title   string
	Message string
	TraceID string // what the person can quote; "" for nothing to quote
	Home    bool   // the page leads to the root
}

// Render writes the page.
func (p Problem) Render() ([]byte, error) { return render("problem.html", p) }
