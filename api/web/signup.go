package web

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

// Signup is the page of an invitation. It names who invites, and nobody who is invited.
type Signup struct {
	Hosted
	State SignupState
	Token string // of characters that need no escaping in a path
}

// Path is where the page is, and where its form goes.
func (s Signup) Path() string { return "/signup/" + s.Token }

// AppURL opens the customer app; "" if no deep link is configured.
func (s Signup) AppURL() any { return s.App.to("signup/" + s.Token) }

// Render writes the page.
func (s Signup) Render() ([]byte, error) { return render("signup.html", s) }
