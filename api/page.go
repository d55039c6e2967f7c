package api

import (
	"context"
	"net/http"

	"partnerbilling/api/web"
)

// page answers with a page for people.
func (r *Request) page(status int, page interface{ Render() ([]byte, error) }) error {
	body, err := page.Render()
	if err != nil {
		return err
	}
	for name, values := range web.Headers() {
		r.SetHeader(name, values[0])
	}
	return r.Bytes(status, web.ContentType, body)
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

// failPage is what a person sees of an error.
func (s *Server) failPage(ctx context.Context, r *Request, e *Error) {
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
	if err := r.page(status, problem); err != nil {
		s.log.ErrorContext(ctx, "render an error page", "err", err)
	}
}
