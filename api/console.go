package api

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/valyala/fasthttp"

	"partnerbilling/api/requestlog"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// consoleMounts returns the mount of the console, the web pages for partners of the sandbox. In
// production it returns none.
func (s *Server) consoleMounts(cfg Config) []Mount {
	if cfg.Sandbox == nil {
		return nil
	}
	qrCodes := pictures(cfg.PublicBaseURL)
	var faults console.RailFaults
	if cfg.Sandbox.Faults {
		faults = cfg.Store
	}
	pages := console.New(console.Config{
		API:          s.call,
		Authenticate: s.authenticator.Authenticate,
		Site: func(ctx context.Context, organisation models.OrganisationID, id models.SiteID) (models.Site, error) {
			return s.sites.find(ctx, organisation, id.String())
		},
		Secrets: func(ctx context.Context, organisation models.OrganisationID) (models.WebhookSecrets, error) {
			return cfg.Store.WebhookSecrets(ctx, cfg.Keys.Keyring(), organisation)
		},
		ServiceTime: func(ctx context.Context) (models.Millis, error) { return cfg.Store.Now(ctx) },
		QRCode: func(paymentURL string) (string, error) {
			picture, err := qrCodes.AppendDataURI(nil, paymentURL[strings.LastIndexByte(paymentURL, '/')+1:])
			return string(picture), err
		},
		Keys: cfg.Keys, PublicBaseURL: cfg.PublicBaseURL, OwnIssuer: cfg.Issuer != nil, Clock: cfg.Sandbox.Clock,
		RailFaults: faults, Links: cfg.Sandbox.Links, Requests: s.requests, Now: s.now, Log: s.log,
		Behaviours: behaviourChoices(), PaymentBehaviours: paymentChoices(),
	})
	return []Mount{{Path: console.Path, Handler: adaptor.HTTPHandler(pages), MaxBody: console.MaxBody, Page: true}}
}

// consoleCall is the key of the user value that marks the API requests which the console makes.
type consoleCall struct{}

// call answers an API request of the console like one from a connection, with the same checks,
// limits and logs.
func (s *Server) call(c console.Call) console.Answer {
	var request fasthttp.Request
	request.Header.SetMethod(c.Method)
	request.SetRequestURI(c.Path)
	request.Header.SetHost("console")
	for name, values := range c.Header {
		for _, value := range values {
			request.Header.Add(name, value)
		}
	}
	var fast fasthttp.RequestCtx
	// The remote address is that of the client, not of a proxy.
	fast.Init(&request, remoteAddress(c.RemoteAddress), serverLogger{s.log})
	fast.SetUserValue(consoleCall{}, true)
	if c.Body != nil {
		fast.Request.SetBodyStream(bytes.NewReader(c.Body), len(c.Body))
	}
	s.serve(&fast)
	response := &fast.Response
	answer := console.Answer{Status: response.StatusCode(), Header: http.Header{}, Body: bytes.Clone(response.Body())}
	for name, value := range response.Header.All() {
		answer.Header.Add(string(name), string(value))
	}
	return answer
}

// remoteAddress parses a client's address of the form host:port. It returns nil if the address is
// malformed.
func remoteAddress(text string) net.Addr {
	address, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		return nil
	}
	return address
}

// recordExchange keeps a request and its answer in the sandbox's request log. It skips callers
// without an organisation, the console's own reads, and reads of the request log itself.
func (s *Server) recordExchange(r *Request, method, route string, took time.Duration) {
	if s.requests == nil {
		return
	}
	byConsole := r.fast.UserValue(consoleCall{}) != nil
	if r.Principal.OrganisationID.IsZero() || byConsole && method == http.MethodGet || route == loggedRequestsPath {
		return
	}
	now := s.now()
	if !s.requests.Admits(r.Principal.OrganisationID, now) {
		return
	}
	e := requestlog.LoggedRequest{
		TraceID: r.trace, At: now, Took: took, Method: method, Route: route,
		Target: string(r.fast.Request.Header.RequestURI()), Client: r.Principal.ClientID, Console: byConsole,
		Status: r.fast.Response.StatusCode(), RequestBody: requestlog.KeepBody(r.raw),
	}
	if r.errorCode != "" {
		e.ErrorCode = r.errorCode.URN()
	}
	for name, value := range r.fast.Request.Header.All() {
		e.RequestHeaders = requestlog.AppendHeader(e.RequestHeaders, name, value)
	}
	for name, value := range r.fast.Response.Header.All() {
		e.ResponseHeaders = requestlog.AppendHeader(e.ResponseHeaders, name, value)
	}
	if r.fast.Response.IsBodyStream() {
		e.ResponseBody.Size = -1 // unknown
	} else {
		e.ResponseBody = requestlog.KeepBody(r.fast.Response.Body())
	}
	s.requests.Add(r.Principal.OrganisationID, e)
}
