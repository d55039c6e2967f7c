package web

import (
	"html/template"
	"net/http"
	"time"
)

// Choice is a behaviour of a sandbox customer's account that a form offers. Value is sent; Label
// and Detail are shown.
type Choice struct {
	Value, Label, Detail string
	Chosen               bool
}

// Hosted is the common part of the pages that customers reach by a link.
type Hosted struct {
	Organisation string    // the name of the inviting or paid organisation
	Colour       string    // "#rrggbb"; "" for one that derives from the organisation's name
	Site         string    // its name
	ExpiresAt    time.Time // until when the customer can act
	Sandbox      bool      // the page has a form that plays the customer app
	Choices      []Choice  // the form's behaviours
	Complaint    string    // the form's error message; "" for none
	App          AppLink   // opens the customer app, outside the sandbox
}

// Colours returns the style sheet of the organisation's colour.
func (h Hosted) Colours() template.CSS {
	colour, ok := parseRGB(h.Colour)
	if !ok {
		colour = colourOf(h.Organisation)
	}
	return colour.variables()
}

// Headers returns the page's headers besides its Content-Type.
func (h Hosted) Headers() http.Header { return headers(string(h.Colours())) }

// Deadline formats ExpiresAt for people.
func (h Hosted) Deadline() string { return formatTime(h.ExpiresAt) }

// DeadlineISO formats ExpiresAt for machines, as RFC 3339 in UTC.
func (h Hosted) DeadlineISO() string { return h.ExpiresAt.UTC().Format(time.RFC3339) }

// formatTime formats a time for people, in UTC. The script of the page shows it in the reader's
// time zone.
func formatTime(t time.Time) string { return t.UTC().Format("Monday 2 January 2006, 15:04\u00a0UTC") }
