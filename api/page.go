package api

import (
	"context"
	"net/http"
	"net/url"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// page answers with a page for people.
func (r *Request) page(status int, page interface{ Render() ([]byte, error) }) error {
	body, err := page.Render()
	if err != nil {
		return err
	}
	return r.pageBytes(status, body)
}

// pageBytes is page, of one that is written already.
func (r *Request) pageBytes(status int, body []byte) error {
	for name, values := range web.Headers() {
		r.SetHeader(name, values[0])
	}
	return r.Bytes(status, web.ContentType, body)
}

// hostedPage is what the pages have in common that customers reach by a link. Only in the sandbox they take a form, with
// which they play the customer app.
type hostedPage struct {
	store   *models.Store
	sandbox bool
	app     web.AppLink
	baseURL string
}

func newHostedPage(cfg Config) hostedPage {
	return hostedPage{store: cfg.Store, sandbox: cfg.Sandbox != nil, app: cfg.AppLink, baseURL: cfg.PublicBaseURL}
}

// maxPageForm is far more than any form of ours has. Strangers send it, so it is little.
const maxPageForm = 4 << 10

// routes are those of a page that is shown, and of its form.
func (p *hostedPage) routes(route Route, show, act Handler) []Route {
	route.Audience, route.Page = Public, true
	form := route
	route.Method, route.Handler = http.MethodGet, show
	form.Method, form.Body, form.Bounds, form.Handler = http.MethodPost, FormBody, BodyBounds{Bytes: maxPageForm}, act
	if !p.sandbox {
		return []Route{route}
	}
	return []Route{route, form}
}

// describe begins a page about something that this Site offers until then.
func (p *hostedPage) describe(organisation, site string, until models.Millis, choices []web.Choice) web.Hosted {
	return web.Hosted{
		Organisation: organisation, Site: site, ExpiresAt: until.Time(), Sandbox: p.sandbox, App: p.app, Choices: choices,
	}
}

// form reads what was sent with the page's form: what to do, and how the account should behave. A form that cannot be
// read says neither.
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

// seeOther leads to the page that shows what came of the form; a reload sends nothing again.
func (r *Request) seeOther(path string) error {
	r.SetHeader("Location", path)
	return r.pageBytes(http.StatusSeeOther, nil)
}

// fromOwnPage reports whether a browser sent the form from one of our own pages. A page that gives no referrer has its
// browser send the origin "null", so that newer browsers' own word on where the form was counts first. What is no
// browser says nothing, and may pass: the path's token is what authorises, not a cookie that a browser adds.
func (r *Request) fromOwnPage(baseURL string) bool {
	if from := r.Header("Sec-Fetch-Site"); from != "" {
		return from == "same-origin" || from == "none"
	}
	origin := r.Header("Origin")
	return origin == "" || origin == "null" || origin == baseURL
}

// failPage answers with the page of a problem.
func (s *Server) failPage(ctx context.Context, r *Request, status int, problem web.Problem) {
	if err := r.page(status, problem); err != nil {
		s.log.ErrorContext(ctx, "render an error page", "err", err)
	}
}

// problemOf is what a person sees of an error.
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
