package api

import (
	"context"
	"net/http"
	"net/url"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// page renders an HTML page and answers with it.
func (r *Request) page(status int, page web.Page) error {
	body, err := page.Render()
	if err != nil {
		return err
	}
	return r.pageBytes(status, page.Headers(), body)
}

// pageBytes answers with an HTML page that is rendered already.
func (r *Request) pageBytes(status int, headers http.Header, body []byte) error {
	for name, values := range headers {
		r.SetHeader(name, values[0])
	}
	return r.Bytes(status, web.ContentType, body)
}

// hostedPage is the common part of the pages that customers reach by a link. Only in the sandbox do
// the pages have a form, which plays the customer app.
type hostedPage struct {
	store   *models.Store
	sandbox bool
	app     web.AppLink
	baseURL string
}

func newHostedPage(cfg Config) hostedPage {
	return hostedPage{store: cfg.Store, sandbox: cfg.Sandbox != nil, app: cfg.AppLink, baseURL: cfg.PublicBaseURL}
}

// pageForm bounds the form of a hosted page. It is small because the form needs no access token.
var pageForm = BodyBounds{Bytes: 4 << 10}

// describe returns the common part of a page. The customer can act on the page until the given
// time. choices are the behaviours that the form offers.
func (p *hostedPage) describe(payee models.Payee, until models.Millis, choices []web.Choice) web.Hosted {
	return web.Hosted{
		Organisation: payee.OrganisationName, Colour: string(payee.OrganisationColour), Site: payee.SiteName,
		ExpiresAt: until.Time(), Sandbox: p.sandbox, App: p.app, Choices: choices,
	}
}

// form decodes the page's form: the action and the behaviour of the sandbox account. Both are "" if
// the form is malformed. form refuses a form that another site's page has sent.
func (p *hostedPage) form(r *Request) (action string, behaviour models.Behaviour, err error) {
	if !r.fromOwnPage(p.baseURL) {
		return "", "", Refuse(InvalidHeader, "Origin")
	}
	form, err := url.ParseQuery(string(r.Form))
	if err != nil {
		form = url.Values{}
	}
	return form.Get("action"), models.Behaviour(form.Get("behaviour")), nil
}

// seeOther redirects to the page that shows the result of a form. A reload of that page does not
// send the form again.
func (r *Request) seeOther(path string) error {
	r.SetHeader("Location", path)
	return r.pageBytes(http.StatusSeeOther, web.Headers(), nil)
}

// fromOwnPage reports whether the form came from one of the service's own pages. Sec-Fetch-Site
// counts first: the origin is "null" if the page's policy forbids a referrer. Clients that send
// neither header pass, because the token in the path authorises them, not a cookie.
func (r *Request) fromOwnPage(baseURL string) bool {
	if from := r.Header("Sec-Fetch-Site"); from != "" {
		return from == "same-origin" || from == "none"
	}
	origin := r.Header("Origin")
	return origin == "" || origin == "null" || origin == baseURL
}

// failPage answers with a page that shows a problem.
func (s *Server) failPage(ctx context.Context, r *Request, status int, problem web.Problem) {
	if err := r.page(status, problem); err != nil {
		s.log.ErrorContext(ctx, "render an error page", "error", err)
	}
}

// problemOf returns the page that shows an error to a person.
func problemOf(r *Request, e *Error) web.Problem {
	status := e.Status()
	problem := web.Problem{Title: "This did not work", Message: e.Faults[0].Message}
	switch {
	case status == http.StatusNotFound:
		problem.Title = "We do not know this link"
		problem.Message = "Check that you have copied all of it, or ask the sender for a new one."
	case status >= http.StatusInternalServerError:
		problem.Title = "Something went wrong"
		problem.Message = "It is our fault, not yours. Please try again in a moment."
		problem.TraceID = string(r.trace)
	}
	return problem
}
