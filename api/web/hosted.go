package web

import "time"

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

// Deadline formats ExpiresAt for people, in UTC because their time zone is unknown.
func (h Hosted) Deadline() string {
	return h.ExpiresAt.UTC().Format("Monday 2 January 2006, 15:04\u00a0UTC")
}

// DeadlineISO formats ExpiresAt for machines.
func (h Hosted) DeadlineISO() string { return h.ExpiresAt.UTC().Format(time.RFC3339) }
