package api

import (
	"context"
	"net/http"
	"slices"

	"partnerbilling/api/docs"
	"partnerbilling/api/web"
	"partnerbilling/api/web/console"
)

// landingLinks are the links of the start page, to the documentation.
var landingLinks = []web.Link{
	{Path: docs.Path, Label: "Guides", Detail: "quick start, debits, payments, webhooks, error codes"},
	{Path: docs.Path + "/reference", Label: "API reference", Detail: "every operation, with samples to run"},
	{Path: "/openapi.json", Label: "OpenAPI document", Detail: "the same for machines, in version 3.1"},
}

// consoleLinks are the additional links of a sandbox's start page.
var consoleLinks = []web.Link{{Path: console.Path, Label: "Sandbox console",
	Detail: "customers, batches, payments and webhooks without code"}}

// landing returns the handler of the start page.
func landing(cfg Config) Handler {
	return func(_ context.Context, r *Request) error { return r.landing(cfg.Sandbox != nil) }
}

// landing answers with the start page.
func (r *Request) landing(sandbox bool) error {
	d, err := documentation()
	if err != nil {
		return err
	}
	links := landingLinks
	if sandbox {
		links = slices.Concat(links, consoleLinks)
	}
	return r.page(http.StatusOK, web.Landing{
		Title: d.Info.Title, Summary: d.Info.Summary, Version: d.Info.Version, Sandbox: sandbox, Links: links,
	})
}

// apiRoots are the paths below which errors are always JSON.
var apiRoots = []string{"/billing", "/checkout", "/webhooks", "/oauth2", "/customer-app", "/sandbox", "/traces"}

// wantsHTML reports whether the client accepts HTML at a path outside the API.
func (r *Request) wantsHTML() bool {
	for _, tree := range apiRoots {
		if inTree(r.path, tree) {
			return false
		}
	}
	return r.acceptWeight("text/html") > 0
}

// notFoundPage is shown at an unknown address.
var notFoundPage = web.Problem{
	Title: "There is nothing at this address", Message: "Check that it is complete, or begin at the start page.",
	Home: true,
}
