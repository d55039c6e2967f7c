// Package docs is the documentation of the API: the OpenAPI document, its reference and the guides.
package docs

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"
)

// Path is the URL path of the index page. All other pages and assets are below it.
const Path = "/docs"

// APIVersion is the only version of the billing API, which the header Svc-Api-Version names.
const APIVersion = "urn:svc:api:billing:version:v1"

// CodePrefix begins every error code in the answers of the API.
const CodePrefix = "urn:svc:platform:billing:error:"

// MaxAge is how long caches may keep the document, the pages and the assets.
const MaxAge = 5 * time.Minute

//go:embed openapi.yaml
var source []byte

//go:embed guides/*.md
var guideFiles embed.FS

// Error is a row of the error catalogue.
type Error struct {
	Code    string // with CodePrefix
	Status  int    // the HTTP status
	Message string // the default display message
	Help    string // the URL path of its explanation, from HelpPath
}

// Info is the head of the OpenAPI document.
type Info struct{ Title, Version, Summary, Description string }

// Docs is the rendered documentation. It is immutable and safe for concurrent use.
type Docs struct {
	Info Info
	JSON []byte // the OpenAPI 3.1 document

	index  []byte
	guides map[string][]byte // rendered pages by name
}

// New renders the documentation, with the error catalogue.
func New(catalogue []Error) (*Docs, error) {
	encoded, err := JSON(source, catalogue)
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(encoded, &d); err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	guides, err := readGuides()
	if err != nil {
		return nil, err
	}
	made := &Docs{Info: d.Info, JSON: encoded, guides: make(map[string][]byte)}
	for _, g := range guides.list {
		if made.guides[g.Name], err = render("guide.html", guides.page(d.Info, g)); err != nil {
			return nil, err
		}
	}
	home := indexPage{page: guides.page(d.Info, guides.home), Sections: d.sections(), Errors: catalogue}
	if made.index, err = render("index.html", home); err != nil {
		return nil, err
	}
	return made, nil
}

// Index returns the first page. It lists the guides, all operations and all error codes.
func (d *Docs) Index() []byte { return d.index }

// Guide returns the page of a guide, such as "webhooks", and whether there is one of that name.
func (d *Docs) Guide(name string) ([]byte, bool) {
	page, ok := d.guides[name]
	return page, ok
}

// Reference returns the page of the API reference. In the sandbox the page can send requests.
func (d *Docs) Reference(sandbox bool) ([]byte, error) {
	return render("reference.html", referencePage{Info: d.Info, Sandbox: sandbox})
}

// HelpPath returns the URL path and fragment of the guide's section about an error code. The code
// comes without CodePrefix, as in "batches:missing-field".
func HelpPath(code string) string { return Path + "/guides/error-codes#" + anchor(code) }
