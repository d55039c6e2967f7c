package web

import "time"

// Choice is one way in which a sandbox customer's account may behave.
type Choice struct {
	Value, Label, Detail string
	Chosen               bool
}

// Hosted is what the pages that customers reach by a link have in common.
type Hosted struct {
	Organisation string
	Site         string
	ExpiresAt    time.Time // of one that still waits for the customer
	Sandbox      bool      // the page plays the customer app, and so has a form
	Choices      []Choice  // of the form
	Complaint    string    // about what was sent with the form; "" for none
	App          AppLink   // where the page leads outside the sandbox
}

// Deadline is the end of what the page is about for people. Where they are is unknown, so it is in UTC.
func (h Hosted) Deadline() string {
	return h.ExpiresAt.UTC().Format("Monday 2 January 2006, 15:04\u00a0UTC")
}

// DeadlineISO is the same for machines.
func (h Hosted) DeadlineISO() string { return h.ExpiresAt.UTC().Format(time.RFC3339) }
