package web

// Landing is the page at the root: it says what runs here, and leads to what can be read about it.
type Landing struct {
	Title   string // of the API
	Summary string
	Version string
	Sandbox bool
	Links   []Link
}

// Link leads from a page to another one of the service.
type Link struct {
	Path, Label, Detail string
}

// Render writes the page.
func (l Landing) Render() ([]byte, error) { return render("landing.html", l) }
