// Package docs is the documentation of the API: the OpenAPI document, the page that is made from
// it, and the guides.
package docs

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

//go:embed openapi.yaml
var source []byte

// MaxAge is how long caches may keep the document and the page.
const MaxAge = 5 * time.Minute

// Error is a row of the error catalogue.
type Error struct {
	Code    string // as on the wire
	Status  int    // the HTTP status
	Message string // the default display message
}

// Info is the head of the OpenAPI document.
type Info struct{ Title, Version, Summary, Description string }

// Docs is the documentation of one version of the service.
type Docs struct {
	Info Info
	JSON []byte // the OpenAPI 3.1 document
	Page []byte // the HTML page
}

// New makes the documentation of the service, with its error catalogue.
func New(errors []Error) (*Docs, error) {
	encoded, err := JSON(source, errors)
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(encoded, &d); err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	page, err := d.render(errors)
	if err != nil {
		return nil, err
	}
	return &Docs{Info: d.Info, JSON: encoded, Page: page}, nil
}

// PagePolicy returns the Content-Security-Policy of the page.
func PagePolicy() string {
	style := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
