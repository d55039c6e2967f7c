package web

import "html/template"

// SignupState is the state that the page of an invitation shows.
type SignupState string

// The states of the page.
const (
	SignupOpen     SignupState = "open"     // waits for the customer
	SignupDeclined SignupState = "declined" // the customer declined for now; the invitation stays open
	SignupDone     SignupState = "done"     // the customer has signed up
	SignupExpired  SignupState = "expired"  // the invitation expired unused
	SignupRevoked  SignupState = "revoked"  // the invitation was withdrawn
)

// Signup is the page of an invitation. It names the inviting organisation and Site, never the
// customer.
type Signup struct {
	Hosted
	State SignupState
	Token string // names the invitation in the page's path; needs no escaping
}

// Heading returns the main heading, which is also the title.
func (s Signup) Heading() string {
	switch s.State {
	case SignupOpen:
		return "Invitation from " + s.Organisation
	case SignupDeclined:
		return "You have not signed up"
	case SignupDone:
		return "You are signed up"
	case SignupExpired:
		return "This invitation has expired"
	default:
		return "This invitation was withdrawn"
	}
}

// PollMillis returns the milliseconds after which the page reads the state again, 0 for never.
func (s Signup) PollMillis() int {
	if s.State == SignupOpen {
		return 5000
	}
	return 0
}

// Path returns the path of the page and of its form.
func (s Signup) Path() string { return "/signup/" + s.Token }

// AppURL returns the link that opens the customer app, "" if none is configured.
func (s Signup) AppURL() template.URL { return s.App.to("signup/" + s.Token) }

// Render returns the page as HTML.
func (s Signup) Render() ([]byte, error) { return render("signup.html", s) }
