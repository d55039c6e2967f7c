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

// Asset is a file that pages load, such as a style sheet. Its path contains a digest of the
// content, so that browsers may keep the file for a year.
type Asset struct {
	Path        string
	contentType string
	content     []byte
}

// NewStyle returns a style sheet as an asset. Its URL path begins with the argument below.
func NewStyle(below, content string) Asset {
	return newAsset(below, "css", "text/css;charset=UTF-8", content)
}

// NewScript returns a script as an asset. Its URL path begins with the argument below.
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

// Execute returns the page that the template of that name makes of data, without white space around
// it.
func Execute(templates *template.Template, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Write answers with an HTML page.
func Write(w http.ResponseWriter, status int, page []byte) {
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

// SeeOther redirects from a form to the page at location, which shows the result. Reloading that
// page does not send the form again.
func SeeOther(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
}

// WithQuery adds parameters to a path. fields alternate names and values. Empty values are left
// out.
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

// Tab is an entry of a page's navigation.
type Tab struct {
	Path, Label string
	Current     bool // the page belongs to it
}

// RFC3339Milli is the layout of RFC 3339 with milliseconds.
const RFC3339Milli = "2006-01-02T15:04:05.000Z07:00"

// TimeElement returns the HTML element time: for people in a layout and UTC, for machines in ISO
// 8601. For the Unix epoch, which stands for no time, it returns a dash.
func TimeElement(t time.Time, layout string) template.HTML {
	if t.UnixMilli() == 0 {
		return "–"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(RFC3339Milli) + //nolint:gosec // a time
		`">` + t.Format(layout) + `</time>`)
}

// Plural returns a number with its noun: one for the number 1, otherwise many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
