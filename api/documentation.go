package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"partnerbilling/api/docs"
)

// documentation is made once: it is the same for every server of a process.
var documentation = sync.OnceValues(func() (*docs.Docs, error) { return docs.New(DocumentedErrors()) })

// DocumentedErrors returns the error catalogue as the documentation shows it.
func DocumentedErrors() []docs.Error {
	rows := make([]docs.Error, len(catalogue))
	for i, e := range catalogue {
		rows[i] = docs.Error{Code: e.Code.URN(), Status: e.Status, Message: e.Message}
	}
	return rows
}

// OpenAPI returns the service's OpenAPI 3.1 document as JSON.
func OpenAPI() ([]byte, error) {
	d, err := documentation()
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}

func serveOpenAPI(_ context.Context, r *Request) error {
	document, err := OpenAPI()
	if err != nil {
		return err
	}
	return r.publicDocument(document, docs.MaxAge)
}

func serveDocs(_ context.Context, r *Request) error {
	d, err := documentation()
	if err != nil {
		return err
	}
	r.SetHeader("Content-Security-Policy", docs.PagePolicy())
	r.SetHeader("Referrer-Policy", "no-referrer")
	r.SetHeader("Cache-Control", fmt.Sprintf("public, max-age=%d", seconds(docs.MaxAge)))
	return r.Bytes(http.StatusOK, "text/html;charset=UTF-8", d.Page)
}
