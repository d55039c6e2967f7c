package web

import "net/http"

// Landing is the page at the root. It names the service and links to its documentation.
type Landing struct {
	Title   string // the API's title
	Summary string
	Version string
	Sandbox bool
	Links   []Link
}

// Link leads to another page of the service.
type Link struct {
	Path, Label, Detail string
}

// Render returns the page as HTML.
func (l Landing) Render() ([]byte, error) { return render("landing.html", l) }

// Headers returns the page's headers besides its Content-Type.
func (l Landing) Headers() http.Header { return Headers() }
