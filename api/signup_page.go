package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// signupPage shows an invitation to the customer that has opened its sign-up link. In the sandbox
// the page has a form that accepts or declines. A GET changes nothing, because mail scanners open
// links.
type signupPage struct {
	hostedPage
	keys *models.Keys
}

// show answers with the page of the sign-up whose token is in the path.
func (p *signupPage) show(ctx context.Context, r *Request) error {
	signup, err := p.store.Signup(ctx, p.keys, r.Param())
	if err != nil {
		return signupError(err)
	}
	return p.answer(r, p.page(r, &signup))
}

// pageStates maps the states of a link to states of the page.
var pageStates = map[models.LinkState]web.SignupState{
	models.LinkInvited: web.SignupOpen,
	models.LinkLinked:  web.SignupDone,
	models.LinkExpired: web.SignupExpired,
	models.LinkRevoked: web.SignupRevoked,
}

// page returns the page of a sign-up.
func (p *signupPage) page(r *Request, signup *models.Signup) web.Signup {
	return web.Signup{
		Hosted: p.describe(signup.Payee, signup.ExpiresAt, behaviourChoices()),
		State:  pageStates[signup.State], Token: r.Param(),
	}
}

// answer answers with a page, and with a status that fits its state.
func (p *signupPage) answer(r *Request, page web.Signup) error {
	status := http.StatusOK
	switch {
	case page.Complaint != "":
		status = http.StatusBadRequest
	case page.State == web.SignupExpired || page.State == web.SignupRevoked:
		status = http.StatusGone
	}
	return r.page(status, page)
}

// act executes the action of the sandbox's form: accept or decline.
func (p *signupPage) act(ctx context.Context, r *Request) error {
	action, behaviour, err := p.form(r)
	if err != nil {
		return err
	}
	signup, err := p.store.Signup(ctx, p.keys, r.Param())
	if err != nil {
		return signupError(err)
	}
	page := p.page(r, &signup)
	switch {
	case page.State != web.SignupOpen: // the link has changed since the page was shown
		return p.answer(r, page)
	case action == "decline":
		page.State = web.SignupDeclined
		return p.answer(r, page)
	case action != "accept" || checkBehaviour(string(behaviour)) != nil:
		page.Complaint = "Choose how the account should behave, and then whether to sign up."
		return p.answer(r, page)
	}
	if err := p.accept(ctx, r.Param(), behaviour); err != nil {
		return err
	}
	return r.seeOther(page.Path())
}

// accept signs a generated customer up. If the link was taken or has ended meanwhile, accept
// returns nil: the page then shows that.
func (p *signupPage) accept(ctx context.Context, token string, behaviour models.Behaviour) error {
	party, err := newSandboxParty(ctx, p.store, behaviour)
	if err != nil {
		return err
	}
	_, err = p.store.CompleteSignup(ctx, p.keys, token, party)
	if errors.Is(err, models.ErrLinkTaken) || errors.Is(err, models.ErrLinkExpired) ||
		errors.Is(err, models.ErrLinkRevoked) {
		return nil
	}
	return err
}
