package web

import (
	"hash/fnv"
	"time"
)

// Choice is a behaviour of a sandbox customer's account that a form offers.
type Choice struct {
	Value, Label, Detail string
	Chosen               bool
}

// Hosted is the common part of the pages that customers reach by a link.
type Hosted struct {
	Organisation string
	Site         string
	ExpiresAt    time.Time // the deadline, while the page waits for the customer
	Sandbox      bool      // the page has a form that plays the customer app
	Choices      []Choice  // the form's behaviours
	Complaint    string    // the form's error message; "" for none
	App          AppLink   // opens the customer app, outside the sandbox
}

// hues is the number of colours that a partner's pages can have; style.css defines them.
const hues = 6

// Hue chooses the colour of a partner's pages by its name, so that all its pages have the same one.
func (h Hosted) Hue() uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.Organisation)) // never fails
	return sum.Sum32() % hues
}

// Deadline formats ExpiresAt for people.
func (h Hosted) Deadline() string { return formatTime(h.ExpiresAt) }

// DeadlineISO formats ExpiresAt for machines.
func (h Hosted) DeadlineISO() string { return h.ExpiresAt.UTC().Format(time.RFC3339) }

// formatTime formats a time for people, in UTC. The script of the page shows it in the reader's
// time zone.
func formatTime(t time.Time) string { return t.UTC().Format("Monday 2 January 2006, 15:04\u00a0UTC") }
