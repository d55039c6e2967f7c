package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// signupPageRoutes are the hosted page of an invitation, for a person's browser. Only in the sandbox it takes a form.
func signupPageRoutes(cfg Config) []Route {
	p := &signupPage{store: cfg.Store, keys: cfg.Keys, app: cfg.AppLink, sandbox: cfg.Sandbox != nil, baseURL: cfg.PublicBaseURL}
	route := Route{
		Path: "/signup/{token}", Area: "signups", Audience: Public, Page: true,
		Param: Param{Name: "token", NotFound: SignupNotFound},
	}
	show, act := route, route
	show.Method, show.Handler = http.MethodGet, p.show
	act.Method, act.Body, act.Handler = http.MethodPost, FormBody, p.act
	if !p.sandbox {
		return []Route{show}
	}
	return []Route{show, act}
}

// signupPage shows an invitation to the customer. Looking at it changes nothing: mail scanners look first.
type signupPage struct {
	store   *models.Store
	keys    *models.Keys
	app     web.AppLink
	baseURL string
	sandbox bool // the page plays the customer app
}

func (p *signupPage) show(ctx context.Context, r *Request) error {
	signup, err := p.store.Signup(ctx, p.keys, r.Param())
	if err != nil {
		return signupError(err)
	}
	return p.answer(r, p.page(r, &signup))
}

// pageStates are the states of the page for those of the link.
var pageStates = map[models.LinkState]web.SignupState{
	models.LinkInvited: web.SignupOpen,
	models.LinkLinked:  web.SignupDone,
	models.LinkExpired: web.SignupExpired,
	models.LinkRevoked: web.SignupRevoked,
}

func (p *signupPage) page(r *Request, signup *models.Signup) web.Signup {
	return web.Signup{
		State: pageStates[signup.State], Organisation: signup.OrganisationName, Site: signup.SiteName,
		ExpiresAt: signup.ExpiresAt.Time(), Token: r.Param(), Sandbox: p.sandbox, App: p.app,
		Choices: behaviourChoices(models.BehaviourPays),
	}
}

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

// act does what the form of the page says: sign up, or not now.
func (p *signupPage) act(ctx context.Context, r *Request) error {
	if !r.fromOwnPage(p.baseURL) {
		return Refuse(InvalidHeader, "Origin")
	}
	form, err := url.ParseQuery(string(r.Form))
	if err != nil {
		form = url.Values{}
	}
	signup, err := p.store.Signup(ctx, p.keys, r.Param())
	if err != nil {
		return signupError(err)
	}
	page := p.page(r, &signup)
	action, behaviour := form.Get("action"), models.Behaviour(form.Get("behaviour"))
	switch {
	case page.State != web.SignupOpen: // it has been decided meanwhile, and the page says how
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
	r.SetHeader("Location", page.Path()) // show what came of it; a reload sends nothing again
	return r.Bytes(http.StatusSeeOther, web.ContentType, nil)
}

// accept signs a sandbox customer up. Whoever was faster, or whatever ended the invitation, the page shows it.
func (p *signupPage) accept(ctx context.Context, token string, behaviour models.Behaviour) error {
	party, err := newSandboxParty(ctx, p.store, behaviour)
	if err != nil {
		return err
	}
	_, err = p.store.CompleteSignup(ctx, p.keys, token, party)
	for _, decided := range []error{models.ErrLinkTaken, models.ErrLinkExpired, models.ErrLinkRevoked} {
		if errors.Is(err, decided) {
			return nil
		}
	}
	return err
}

// behaviourChoices are the sandbox's behaviours in words.
func behaviourChoices(chosen models.Behaviour) []web.Choice {
	words := map[models.Behaviour][2]string{
		models.BehaviourPays:               {"Pays", "every debit succeeds"},
		models.BehaviourInsufficientFunds:  {"Has no money", "debits fail with insufficientFunds"},
		models.BehaviourAccountUnavailable: {"Account unavailable", "debits fail with accountUnavailable"},
		models.BehaviourLimitExceeded:      {"Over the limit", "debits fail with limitExceeded"},
		models.BehaviourDeclines:           {"Declines", "the customer says no: declinedByCustomer"},
		models.BehaviourSlow:               {"Slow bank", "answers after 2 seconds, then pays"},
		models.BehaviourBankDown:           {"Bank is down", "unavailable for 30 seconds from now, then pays"},
		models.BehaviourAnswerLost:         {"Answer gets lost", "pays, and the first answer never arrives"},
	}
	choices := make([]web.Choice, len(models.Behaviours))
	for i, b := range models.Behaviours {
		choices[i] = web.Choice{Value: string(b), Label: words[b][0], Detail: words[b][1], Chosen: b == chosen}
	}
	return choices
}
