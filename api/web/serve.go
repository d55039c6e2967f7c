package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Asset is a file that pages load. The path holds the content's digest, so that browsers may keep
// the file.
type Asset struct {
	Path        string
	contentType string
	content     []byte
}

// NewStyle returns the asset of a style sheet below a path.
func NewStyle(below, content string) Asset {
	return newAsset(below, "css", "text/css;charset=UTF-8", content)
}

// NewScript returns the asset of a script below a path.
func NewScript(below, content string) Asset {
	return newAsset(below, "js", "text/javascript;charset=UTF-8", content)
}

func newAsset(below, extension, contentType, content string) Asset {
	sum := sha256.Sum256([]byte(content))
	return Asset{
		Path:        below + "/assets/" + hex.EncodeToString(sum[:8]) + "." + extension,
		contentType: contentType, content: []byte(content),
	}
}

// ServeHTTP implements http.Handler.
func (a Asset) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.content)
}

// Execute returns the page that a template makes, without white space around it.
func Execute(templates *template.Template, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Write answers with a page.
func Write(w http.ResponseWriter, status int, page []byte) {
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

// SeeOther redirects to the page that shows the result of a form. Reloading that page sends no
// form.
func SeeOther(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
}

// WithQuery adds parameters, given as names and values, to a path. It leaves out empty values.
func WithQuery(path string, fields ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		if value := fmt.Sprint(fields[i+1]); value != "" {
			q.Set(fmt.Sprint(fields[i]), value)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Tab is an entry of a navigation.
type Tab struct {
	Path, Label string
	Current     bool
}

// TimeElement writes a point in time for people, by a layout in UTC, and for machines. It writes a
// dash for the Unix epoch.
func TimeElement(t time.Time, layout string) template.HTML {
	if t.UnixMilli() == 0 {
		return "–"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format("2006-01-02T15:04:05.000Z07:00") + //nolint:gosec // a time
		`">` + t.Format(layout) + `</time>`)
}

// Plural writes a number with its noun: one for 1, many for others.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
