package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// signInPage is the page on which a session begins.
type signInPage struct {
	OwnIssuer bool
	ClientID  string
	Next      string // the page to show after the sign-in; "" for the overview
	Complaint string
}

func (v *visit) signInPage(status int, p signInPage) error {
	p.OwnIssuer = v.console.OwnIssuer
	return v.render(status, "sign-in", &base{Title: "Sign in"}, p)
}

func (c *Console) showSignIn(v *visit) error {
	return v.signInPage(http.StatusOK, signInPage{Next: localPath(v.query("next"))})
}

// localPath returns path if it is that of a page below Path, otherwise "".
func localPath(path string) string {
	u, err := url.Parse(path)
	foreign := err != nil || u.IsAbs() || u.Host != "" || strings.ContainsAny(path, "\\\r\n")
	if foreign || !strings.HasPrefix(path, Path+"/") {
		return ""
	}
	return path
}

// signIn begins a session with the credentials of an API client, or with an access token.
func (c *Console) signIn(v *visit) error {
	p := signInPage{ClientID: v.form("clientId"), Next: localPath(v.form("next"))}
	token, lifetime := v.form("accessToken"), time.Duration(0)
	if token == "" && c.OwnIssuer {
		var refusal string
		token, lifetime, refusal = v.issueToken(p.ClientID, v.form("clientSecret"))
		if refusal != "" {
			p.Complaint = refusal
			return v.signInPage(http.StatusUnauthorized, p)
		}
	}
	err := v.signInWith(token, lifetime, v.session.Sites)
	if errors.Is(err, errSignedOut) {
		p.Complaint = "These are not the credentials of an organisation's API client, or they have expired."
		return v.signInPage(http.StatusUnauthorized, p)
	}
	if errors.Is(err, errLongSession) {
		p.Complaint = "The access token is too long: the browser cannot keep it in a cookie. Use a shorter token."
		return v.signInPage(http.StatusBadRequest, p)
	}
	if err != nil {
		return err
	}
	if p.Next != "" {
		return v.seeOther(p.Next)
	}
	return v.seeOther(Path)
}

// issueToken asks the token endpoint for an access token. refusal is a message for the page; ""
// means success.
func (v *visit) issueToken(clientID, secret string) (token string, lifetime time.Duration, refusal string) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {clientID}, "client_secret": {secret}}
	a := v.console.API(Call{
		Method: http.MethodPost, Path: auth.TokenPath, Body: []byte(form.Encode()), RemoteAddress: v.r.RemoteAddr,
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	})
	var granted struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}
	switch a.Status {
	case http.StatusOK:
		if json.Unmarshal(a.Body, &granted) == nil && granted.Token != "" {
			return granted.Token, time.Duration(granted.Expires) * time.Second, ""
		}
	case http.StatusBadRequest, http.StatusUnauthorized:
		return "", 0, "The clientId and the clientSecret do not belong together."
	case http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return "", 0, "Too many attempts. Try again in " + web.Plural(max(1, seconds), "second", "seconds") + "."
	}
	return "", 0, "The service cannot check credentials now. Try again in a moment."
}

// signInWith begins a session with an access token. Of the sites, it keeps those that belong to the
// token's organisation. A lifetime of 0 means sessionLifetime. If the token is not valid for an
// organisation, signInWith returns errSignedOut. If the token is too long for a cookie, it returns
// errLongSession. With an error, it keeps the previous session.
func (v *visit) signInWith(token string, lifetime time.Duration, sites []models.SiteID) (err error) {
	if lifetime <= 0 || lifetime > sessionLifetime {
		lifetime = sessionLifetime
	}
	s := newSession(v.console.Now().Add(lifetime)) // and with it a new CSRF token
	s.Token = token
	before, caller := v.session, v.principal
	v.session = s
	defer func() {
		if err != nil { // the browser's cookie holds the previous CSRF token
			v.session, v.principal = before, caller
		}
	}()
	if err = v.requireSession(); err != nil {
		return err
	}
	for _, id := range sites {
		if _, err := v.console.Site(v.ctx, v.principal.OrganisationID, id); err == nil {
			s.remember(id)
		}
	}
	return v.begin(s)
}

// showEntry shows the page of a sign-in link, without using the link. Programs that preview links
// open them first.
func (c *Console) showEntry(v *visit) error {
	if !c.Links.isOpen(v.r.PathValue("link")) {
		return v.usedLink()
	}
	return v.render(http.StatusOK, "enter", &base{Title: "Open the console"}, v.r.PathValue("link"))
}

// usedLink shows the sign-in page after a link that is not open.
func (v *visit) usedLink() error {
	const complaint = "This link was used already, or it is of an earlier start of the service."
	return v.signInPage(http.StatusGone, signInPage{Complaint: complaint})
}

// enter signs in with a sign-in link, and so uses it.
func (c *Console) enter(v *visit) error {
	grant, ok := c.Links.use(v.r.PathValue("link"))
	if !ok {
		return v.usedLink()
	}
	token, lifetime, refusal := v.issueToken(grant.ClientID.String(), grant.ClientSecret)
	if refusal != "" {
		return v.signInPage(http.StatusUnauthorized, signInPage{Complaint: refusal})
	}
	if err := v.signInWith(token, lifetime, grant.Sites); err != nil {
		return err
	}
	return v.seeOther(Path)
}

// signOut deletes the session in the browser.
func (c *Console) signOut(v *visit) error {
	v.w.Header().Del("Set-Cookie")
	http.SetCookie(v.w, c.cookie("", 0))
	return v.seeOther(Path + "/session")
}
