package web

import "time"

// SignupState is what the page of an invitation has to say.
type SignupState string

// The states of the page.
const (
	SignupOpen     SignupState = "open"
	SignupDeclined SignupState = "declined" // the customer said "not now"; nothing has changed
	SignupDone     SignupState = "done"
	SignupExpired  SignupState = "expired"
	SignupRevoked  SignupState = "revoked"
)

// Choice is one way in which a sandbox customer's account may behave.
type Choice struct {
	Value, Label, Detail string
	Chosen               bool
}

// Signup is the page of an invitation. It names who invites, and nobody who is invited.
type Signup struct {
	State        SignupState
	Organisation string
	Site         string
	ExpiresAt    time.Time // of an open or declined one
	Token        string    // of characters that need no escaping in a path
	Sandbox      bool      // the page plays the customer app, and so has a form
	Choices      []Choice  // of the form
	Complaint    string    // about what was sent with the form; "" for none
	App          AppLink   // where an open one leads outside the sandbox
}

// Path is where the page is, and where its form goes.
func (s Signup) Path() string { return "/signup/" + s.Token }

// AppURL opens the customer app; "" if no deep link is configured.
func (s Signup) AppURL() any { return s.App.to("signup/" + s.Token) }

// Deadline is the end of the invitation for people. Where they are is unknown, so it is in UTC.
func (s Signup) Deadline() string {
	return s.ExpiresAt.UTC().Format("Monday 2 January 2006, 15:04\u00a0UTC")
}

// DeadlineISO is the end of the invitation for machines.
func (s Signup) DeadlineISO() string { return s.ExpiresAt.UTC().Format(time.RFC3339) }

// Render writes the page.
func (s Signup) Render() ([]byte, error) { return render("signup.html", s) }
