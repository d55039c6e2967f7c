package api

import (
	"context"
	"net/http"
	"sync"

	"partnerbilling/api/docs"
)

// documentation returns the documentation, with the error catalogue. It is built once for all
// servers of a process.
var documentation = sync.OnceValues(func() (*docs.Docs, error) { return docs.New(DocumentedErrors()) })

// DocumentedErrors returns the error catalogue in the form of package docs.
func DocumentedErrors() []docs.Error {
	rows := make([]docs.Error, len(catalogue))
	for i, e := range catalogue {
		rows[i] = docs.Error{
			Code: e.Code.URN(), Status: e.Status, Message: e.Message, Help: helpPaths[e.Code],
		}
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

// serveOpenAPI answers with the OpenAPI document.
func serveOpenAPI(_ context.Context, r *Request) error {
	document, err := OpenAPI()
	if err != nil {
		return err
	}
	return r.publicDocument(document, docs.MaxAge)
}

// serveDocs answers with the first page of the documentation.
func serveDocs(_ context.Context, r *Request) error {
	d, err := documentation()
	if err != nil {
		return err
	}
	return r.docsPage(d.Index(), docs.PagePolicy)
}

// serveGuide answers with the guide that the path names.
func serveGuide(_ context.Context, r *Request) error {
	d, err := documentation()
	if err != nil {
		return err
	}
	page, ok := d.Guide(r.Param())
	if !ok {
		return Refuse(NotFound, "")
	}
	return r.docsPage(page, docs.PagePolicy)
}

// serveReference returns the handler of the API reference. The reference sends requests in the
// sandbox only.
func serveReference(cfg Config) Handler {
	return func(_ context.Context, r *Request) error {
		d, err := documentation()
		if err != nil {
			return err
		}
		page, err := d.Reference(cfg.Sandbox != nil)
		if err != nil {
			return err
		}
		return r.docsPage(page, docs.ReferencePolicy)
	}
}

// docsPage answers with an HTML page of the documentation under a Content-Security-Policy.
func (r *Request) docsPage(page []byte, policy string) error {
	r.SetHeader("Content-Security-Policy", policy)
	r.SetHeader("Referrer-Policy", "no-referrer")
	r.cacheDocs()
	return r.Bytes(http.StatusOK, "text/html;charset=UTF-8", page)
}

// cacheDocs lets clients cache the answer for docs.MaxAge.
func (r *Request) cacheDocs() {
	r.SetHeader("Cache-Control", "public, max-age="+seconds(docs.MaxAge))
}

// serveAsset answers with a file that the documentation's pages use, gzipped if the client accepts
// that.
func serveAsset(_ context.Context, r *Request) error {
	asset, ok := docs.Assets[r.Param()]
	if !ok {
		return Refuse(NotFound, "")
	}
	body := asset.Body
	if asset.Gzip {
		r.SetHeader("Vary", "Accept-Encoding")
		if r.fast.Request.Header.HasAcceptEncoding("gzip") {
			r.SetHeader("Content-Encoding", "gzip")
		} else {
			var err error
			if body, err = asset.Plain(); err != nil {
				return err
			}
		}
	}
	r.cacheDocs()
	return r.Bytes(http.StatusOK, asset.ContentType, body)
}
