// Package web renders the service's pages for people and supplies their security headers. The pages
// load nothing from other hosts. They work without JavaScript. With it, the pages for customers
// (type Hosted) update themselves when the sign-up or payment changes its state. They also show
// times in the reader's time zone.
package web

import (
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

// Tables is the style of the tables on pages of the console and of operators. A table that is wider
// than its page scrolls.
//
//go:embed table.css
var Tables string

//go:embed style.css
var ownStyle string

var style = Palette + ownStyle

// script runs on the hosted pages.
//
//go:embed hosted.js
var script string

// Page is a page that the service renders.
type Page interface {
	Render() ([]byte, error) // as HTML
	Headers() http.Header    // besides its Content-Type
}

// head is the data of the template with which each page begins.
type head struct {
	Title  string
	Reload bool           // without JavaScript, the browser loads the page again every two seconds
	Styles []template.CSS // further style sheets
}

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
	"script": func() template.JS { return template.JS(script) },  //nolint:gosec // embedded
	"head": func(title string, reload bool, styles ...template.CSS) head {
		return head{title, reload, styles}
	},
}).ParseFS(files, "*.html"))

// ContentType is the Content-Type of every page.
const ContentType = "text/html;charset=UTF-8"

var styleDigest, scriptDigest = digest(style), digest(script)

// policy returns a Content-Security-Policy. A page may use its own styles, its own script and
// images of data URLs, and send requests and forms to the service. Everything else is forbidden.
func policy(styles ...string) string {
	digests := styleDigest
	for _, text := range styles {
		digests += " " + digest(text)
	}
	return "default-src 'none'; style-src " + digests + "; script-src " + scriptDigest +
		"; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// digest returns the source expression with which the policy allows a style or script.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Headers returns the headers of a page that uses only the common style sheet, besides its
// Content-Type. Some pages have a secret address, such as a sign-up link. Caches must not keep
// pages, search engines must not list them, and other sites must not learn their addresses.
func Headers() http.Header { return headers() }

// headers is like Headers for a page with further style sheets.
func headers(styles ...string) http.Header {
	return http.Header{
		"Content-Security-Policy": {policy(styles...)},
		"Cache-Control":           {"no-store"},
		"Referrer-Policy":         {"no-referrer"},
		"X-Frame-Options":         {"DENY"},
		"X-Robots-Tag":            {"noindex, nofollow"},
	}
}

// render executes a page's template.
func render(name string, data any) ([]byte, error) {
	page, err := Execute(pages, name, data)
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return page, nil
}

// Problem is the page of an error.
type Problem struct {
	Title   string
	Message string
	TraceID string // to quote to support; "" for none
	Home    bool   // shows a link to the root
}

// Render returns the page as HTML.
func (p Problem) Render() ([]byte, error) { return render("problem.html", p) }

// Headers returns the page's headers besides its Content-Type.
func (p Problem) Headers() http.Header { return Headers() }
