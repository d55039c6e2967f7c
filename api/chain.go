package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/docs"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// APIVersion is the only version of the billing API.
const APIVersion = docs.APIVersion

// check is one step between the router and a handler.
type check func(context.Context, *Request) error

// checks returns the checks in the order in which they run. The error of the first check that fails
// becomes the answer.
func (s *Server) checks() []check {
	return []check{
		s.admit, // first: shedding must cost little, and its 503 reveals no result of the later checks
		s.authenticate, s.limitRate, s.checkScope, s.checkSite, s.checkVersion,
		s.checkMediaType, s.readIdempotencyKey, s.checkQuery, s.readBody, s.checkParam,
	}
}

// run passes a request through the checks of its route to the handler. It returns the error to
// answer, nil if the handler has answered.
func (s *Server) run(ctx context.Context, r *Request) error {
	for _, check := range s.chain {
		if err := check(ctx, r); err != nil {
			return err
		}
	}
	return r.withQueryFaults(r.route.Handler(r.withReplica(r.withAct(ctx)), r))
}

// withReplica lets the console's reads use the replica. Of the partners' own requests, only those
// for CSV read it: their handlers say so.
func (r *Request) withReplica(ctx context.Context) context.Context {
	if r.route.Method == http.MethodGet && r.fast.UserValue(consoleCall{}) != nil {
		return models.ReadReplica(ctx)
	}
	return ctx
}

// withAct adds the route's act, if there is one, to the context. The audit log then records the
// change.
func (r *Request) withAct(ctx context.Context) context.Context {
	if r.route.Act == "" {
		return ctx
	}
	return models.WithAct(ctx, &models.Act{Name: r.route.Act, Actor: models.Actor{
		Kind: models.ActorClient, Name: r.Principal.ClientID.String(), OrganisationID: r.Principal.OrganisationID,
		Origin: r.address.String(),
	}})
}

// withQueryFaults returns the answer to a handler's error err, which may be nil. If the query has
// faults that the handler has not answered, it returns their refusal instead. That includes the
// faults of err if they have the same status.
func (r *Request) withQueryFaults(err error) error {
	if len(r.queryFaults) == 0 {
		return err
	}
	all := &Error{Faults: r.queryFaults}
	var more *Error
	if errors.As(err, &more) && more.Status() == all.Status() {
		all.Faults = append(all.Faults, more.Faults...)
	}
	return all
}

// authenticate sets the principal of a request, unless the route is public.
func (s *Server) authenticate(ctx context.Context, r *Request) (err error) {
	if r.route.Audience == Public {
		return nil
	}
	if r.Principal, err = s.authenticateHeaders(ctx, r.headers("Authorization"), r.address); err != nil {
		if errors.Is(err, auth.ErrInvalidToken) {
			s.callers.forget(r)
		}
		return err
	}
	if c, ok := r.fast.Conn().(*conn); ok {
		c.markKnown()
	}
	s.callers.learn(r)
	return nil
}

// authenticateHeaders authenticates the caller by a request's Authorization headers. There must be
// exactly one.
func (s *Server) authenticateHeaders(
	ctx context.Context, headers []string, from netip.Addr,
) (p Principal, err error) {
	switch len(headers) {
	case 0:
		err = auth.ErrNoCredentials
	case 1:
		p, err = s.authenticator.Authenticate(ctx, headers[0], from)
	default:
		err = auth.ErrInvalidToken
	}
	challenge := "Bearer"
	switch {
	case errors.Is(err, auth.ErrInvalidToken):
		challenge = `Bearer error="invalid_token"`
	case !errors.Is(err, auth.ErrNoCredentials):
		return p, err
	}
	e := Refuse(InvalidToken, "")
	e.Challenge, e.Cause = challenge, err
	return Principal{}, e
}

// limitRate counts the request for its client, and refuses it with 429 above the limit.
func (s *Server) limitRate(ctx context.Context, r *Request) error {
	if r.route.Audience == Public || s.limiter == nil {
		return nil
	}
	decision := s.limiter.Take(ctx, r.Principal.ClientID, r.route.Rate)
	r.setLimitHeaders(decision.Limits)
	if decision.Allowed {
		return nil
	}
	e := Refuse(RateLimited, "")
	e.RetryAfter = max(decision.RetryAfter, time.Second)
	return e
}

// setLimitHeaders sets the headers RateLimit-Policy and RateLimit, which are structured fields (RFC
// 9651).
func (r *Request) setLimitHeaders(limits []ratelimit.Limit) {
	if len(limits) == 0 {
		return
	}
	var policies, states []string
	for _, l := range limits {
		policies = append(policies, fmt.Sprintf("%q;q=%d;w=%s", l.Name, l.Quota, seconds(l.Window)))
		states = append(states, fmt.Sprintf("%q;r=%d;t=%s", l.Name, l.Remaining, seconds(l.Reset)))
	}
	r.SetHeader("RateLimit-Policy", strings.Join(policies, ", "))
	r.SetHeader("RateLimit", strings.Join(states, ", "))
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// checkScope checks the caller against the route's audience and scope.
func (s *Server) checkScope(_ context.Context, r *Request) error { return r.route.permit(r.Principal) }

// permit refuses a caller outside the route's audience or without its scope. A route without a
// scope needs a token with any scope.
func (r *Route) permit(p Principal) error {
	if r.Audience == Public {
		return nil
	}
	isPartner := !p.OrganisationID.IsZero()
	hasScope := p.Has(r.Scope) || r.Scope == "" && len(p.Scopes) > 0
	if isPartner == (r.Audience == Partner) && hasScope {
		return nil
	}
	e := Refuse(InsufficientScope, "")
	e.Challenge = `Bearer error="insufficient_scope"`
	if r.Scope != "" {
		e.Challenge += fmt.Sprintf(`, scope=%q`, r.Scope)
	}
	return e
}

// checkSite finds the Site in the path. A Site of another organisation is answered like a missing
// one.
func (s *Server) checkSite(ctx context.Context, r *Request) (err error) {
	if !r.route.hasSite() {
		return nil
	}
	r.Site, err = s.sites.find(ctx, r.Principal.OrganisationID, r.rawParam("siteId"))
	return siteError(err)
}

// siteError maps the error of finding a Site to its answer, which is the same for every
// inaccessible Site.
func siteError(err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return Refuse(SiteNotAccessible, "siteId")
	}
	return err
}

// checkVersion checks the header Svc-Api-Version as the route's Versioning requires.
func (s *Server) checkVersion(_ context.Context, r *Request) error {
	if r.route.Version == VersionIgnored {
		return nil
	}
	switch versions := r.headers(headerVersion); {
	case len(versions) == 0 && r.route.Version == VersionOptional:
		return nil
	case len(versions) == 1 && versions[0] == APIVersion:
		return nil
	default:
		return Refuse(UnsupportedAPIVersion, headerVersion)
	}
}

// checkQuery parses the query. Every unknown, repeated or malformed parameter is a fault. The
// faults of a list are answered later, together with the faults of its filters. But a list refuses
// a malformed cursor, or a cursor with other parameters, at once as an invalid pagination link.
func (s *Server) checkQuery(_ context.Context, r *Request) error {
	if r.route.Page || r.route.OAuth {
		return nil
	}
	params, order, bad := parseQuery(string(r.fast.URI().QueryString()))
	hasCursor := len(params["cursor"]) > 0 || slices.Contains(bad, "cursor")
	if r.route.Paged && hasCursor && (len(order) > 1 || len(params["cursor"]) > 1 || len(bad) > 0) {
		return refuseLink(r)
	}
	e := &Error{}
	code := inArea(r.route.Area, "invalid-parameter")
	complain := func(name, complaint string) {
		if len(e.Faults) < MaxFaults {
			shown := showName(name)
			e.Add(Fault{Code: code, Target: shown, Message: cmp.Or(shown, "an empty name") + " " + complaint})
		}
	}
	for _, name := range order {
		switch {
		case !slices.Contains(r.route.Query, name) && (!r.route.Paged || name != "cursor"):
			complain(name, "is not a parameter of this operation")
		case len(params[name]) > 1:
			complain(name, "must be given once")
			delete(params, name) // so that its value is not judged as well
		}
	}
	for _, name := range bad {
		complain(name, "must be percent-encoded UTF-8")
	}
	r.query, r.queryFaults = params, e.Faults
	if len(e.Faults) > 0 && !r.route.Paged {
		return e
	}
	return nil
}

// checkMediaType checks the media type and the encoding of a body. An empty body may declare any.
func (s *Server) checkMediaType(ctx context.Context, r *Request) error {
	if r.route.Body == NoBody || !r.hasBody() {
		return nil
	}
	refusal := r.refuseMediaType()
	if refusal == nil {
		return nil
	}
	if empty, err := r.isEmptyBody(ctx); empty || err != nil {
		return err
	}
	return refusal
}

// refuseMediaType returns the refusal of a wrong media type or encoding, nil if both are right.
func (r *Request) refuseMediaType() error {
	encodings, types := r.headers("Content-Encoding"), r.headers("Content-Type")
	for _, encoding := range encodings {
		if !strings.EqualFold(strings.TrimSpace(encoding), "identity") {
			return Refuse(UnsupportedMediaType, "Content-Encoding")
		}
	}
	want := "application/json"
	if r.route.Body == FormBody {
		want = "application/x-www-form-urlencoded"
	}
	if len(types) != 1 || !isMediaType(types[0], want) {
		e := Refuse(UnsupportedMediaType, "Content-Type")
		if r.route.Body == FormBody {
			e.Faults[0].Message = "The body must be " + want + "."
		}
		return e
	}
	return nil
}

// readBody reads the body, and parses it as the route's BodyKind says. The handlers of OAuth routes
// read it themselves.
func (s *Server) readBody(ctx context.Context, r *Request) error {
	switch {
	case r.route.OAuth:
		return nil
	case r.route.Body == NoBody && r.fast.Request.Header.ContentLength() > r.route.Bounds.Bytes:
		return tooLarge(r.route.Bounds.Bytes)
	case r.route.Body == NoBody:
		return nil
	}
	raw, err := r.readAll(ctx, r.route.Bounds.Bytes)
	if err != nil {
		return err
	}
	if s.requests != nil {
		r.raw = raw
	}
	if r.route.Body == FormBody {
		r.Form = raw
		return nil
	}
	if len(raw) == 0 && r.route.Body == OptionalJSON {
		return nil
	}
	if r.Body, err = strictjson.ParseWithin(raw, r.route.Bounds.JSON); err != nil {
		e := Refuse(MalformedJSON, "")
		e.Faults[0].Message = "The body " + err.Error() + "."
		return e
	}
	return nil
}

// checkParam decodes and checks the route's own path parameter.
func (s *Server) checkParam(_ context.Context, r *Request) error {
	p := r.route.Param
	if p.Name == "" {
		return nil
	}
	value, err := decodePath(r.rawParam(p.Name))
	if err == nil && p.Check != nil {
		err = p.Check(value)
	}
	if err != nil {
		return Refuse(p.NotFound, p.Name)
	}
	r.param = value
	return nil
}

// onFailure observes every error that is answered. Only tests set it.
var onFailure = func(*Error) {}

// fail writes the answer to an error: JSON, a page or an OAuth error. It logs errors of status 500
// and above, except those that wrap errBusy.
func (s *Server) fail(ctx context.Context, r *Request, err error) {
	e := errorOf(r.area(), err)
	onFailure(e)
	r.errorCode = e.Faults[0].Code
	status := e.Status()
	if status >= http.StatusInternalServerError && !errors.Is(err, errBusy) {
		s.log.ErrorContext(ctx, "request failed", "status", status, logs.Outage(e.Cause), "error", e.Cause)
	}
	response := &r.fast.Response
	response.ResetBody()
	for _, name := range []string{"Location", "ETag", "Retry-After", "Cache-Control", "Content-Disposition",
		headerReplayed} {
		response.Header.Del(name) // set by a handler before it failed
	}
	if e.Challenge != "" {
		response.Header.Set("WWW-Authenticate", e.Challenge)
	}
	if e.RetryAfter > 0 {
		r.RetryAfter(e.RetryAfter)
	}
	if e.Close {
		response.SetConnectionClose()
	}
	switch {
	case r.route != nil && r.route.Page:
		s.failPage(ctx, r, status, problemOf(r, e))
		return
	case status == http.StatusNotFound && r.wantsHTML():
		s.failPage(ctx, r, status, notFoundPage)
		return
	case r.route != nil && r.route.OAuth && status >= http.StatusInternalServerError:
		_ = r.token(auth.TokenFailure(err)) // never fails
		return
	}
	response.Header.Set("Link", "<"+s.publicBaseURL+helpPaths[e.Faults[0].Code]+`>; rel="help"`)
	_ = r.Bytes(status, ContentTypeJSON, errorBody(e, r.trace, isShapeB(r.path), s.now())) // never fails
}
