package docs

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed *.html
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"prose": prose}).
	ParseFS(templateFiles, "*.html"))

// page is the data of every page but the reference: one guide beside the list of all guides.
type page struct {
	Info   Info
	Guide  guide
	Guides []guide
}

// indexPage is the first page.
type indexPage struct {
	page
	Sections []section
	Errors   []Error
}

// referencePage is the page of the API reference. In a sandbox it can send requests.
type referencePage struct {
	Info    Info
	Sandbox bool
}

// page returns the data of a guide's page.
func (s guideSet) page(info Info, g guide) page { return page{Info: info, Guide: g, Guides: s.list} }

// render executes the template in the file name.
func render(name string, data any) ([]byte, error) {
	var rendered bytes.Buffer
	if err := templates.ExecuteTemplate(&rendered, name, data); err != nil {
		return nil, fmt.Errorf("docs: page: %w", err)
	}
	return rendered.Bytes(), nil
}

// prose returns text as HTML. Parts between backquotes become code.
func prose(text string) template.HTML {
	var html strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		html.WriteString(part)
	}
	return template.HTML(html.String()) //nolint:gosec // escaped above
}

// PagePolicy is the Content-Security-Policy of the guides and the index, which have no script.
const PagePolicy = "default-src 'none'; style-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ReferencePolicy is the Content-Security-Policy of the API reference. Its viewer runs only scripts
// of this service and calls no other host. The viewer needs inline styles.
const ReferencePolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
