package api

import (
	"context"
	"net/netip"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Audience says which clients may call a route.
type Audience uint8

// The audiences.
const (
	Partner     Audience = iota + 1 // the clients of an organisation
	CustomerApp                     // the customer app's backend; it has no organisation
	Public                          // every client, without a token
)

// Versioning says how a route treats the header Svc-Api-Version.
type Versioning uint8

// The ways to treat the header.
const (
	VersionIgnored  Versioning = iota // the header is ignored
	VersionOptional                   // the header may be absent, but not wrong
	VersionRequired                   // the header must be present and right
)

// BodyKind says what body a route accepts.
type BodyKind uint8

// The kinds of bodies.
const (
	NoBody       BodyKind = iota // a body is ignored, but refused if it is announced as too large
	JSONBody                     // one JSON object
	OptionalJSON                 // one JSON object or no body
	FormBody                     // application/x-www-form-urlencoded, passed to the handler undecoded
)

// BodyBounds bounds the body of a request.
type BodyBounds struct {
	Bytes int               // the size of the largest body
	JSON  strictjson.Limits // bounds of a JSON body
}

// maxBatchBytes is the size of the largest body of any route, in bytes.
const maxBatchBytes = 1 << 20

// BatchBody bounds the body of a batch's submission and validation.
var BatchBody = BodyBounds{Bytes: maxBatchBytes, JSON: strictjson.Limits{Values: 32_768, UnknownBytes: 16 << 10}}

// maxOrdinaryBytes is the size of the largest body of every other route, in bytes.
const maxOrdinaryBytes = 64 << 10

// ordinaryBody bounds every other body.
var ordinaryBody = BodyBounds{Bytes: maxOrdinaryBytes, JSON: strictjson.Limits{Values: 2_048, UnknownBytes: 2 << 10}}

// Handler answers a request that has passed every check of its route. Its error becomes the answer.
// The context has the route's deadline, the trace id and the span.
type Handler func(ctx context.Context, r *Request) error

// Route is a row of the route table. The checks before the handler follow from it.
type Route struct {
	Method string // GET includes HEAD
	Path   string // as in the API description: /billing/sites/{siteId}/customers
	// Area is the area of the error codes for faults in parameters and fields, such as "batches".
	// Codes that the catalogue lacks in this area are those of the area "requests".
	Area     string
	Audience Audience
	Scope    models.Scope // the scope that the token must have; "" for any scope
	Version  Versioning
	Rate     ratelimit.Class // default ratelimit.Default
	Query    []string        // the known parameters; unknown and repeated ones are refused
	// Paged routes also accept the parameter cursor, but not together with others. Every fault of a
	// query with a cursor is an invalid pagination link.
	Paged bool
	Body  BodyKind
	// Bounds bounds the body; default ordinaryBody.
	Bounds BodyBounds
	// Param is the path parameter besides siteId, if there is one.
	Param Param
	// Page routes answer with HTML, errors included. They ignore the query, because other services
	// may add parameters to a link.
	Page bool
	// OAuth routes answer in the form of RFC 6749, errors included. Only a 404, and a 400 or 408
	// about a body that cannot be read, have the form of the other routes. The handlers of OAuth
	// routes check query and body themselves.
	OAuth bool
	// Idempotent routes accept the header Idempotency-Key.
	Idempotent bool
	// SkipAdmission routes need no slot, so they answer under any load.
	SkipAdmission bool
	// Timeout bounds the time until the answer; default Config.RequestTimeout.
	Timeout time.Duration
	// Act names what the route changes, for the audit log. The database transaction of the change
	// records it. "" means that nothing is recorded.
	Act     models.ActName
	Handler Handler
}

// Param is a route's own path parameter. A value that is malformed or fails Check is answered with
// NotFound.
type Param struct {
	Name     string
	Check    func(string) error // may be nil
	NotFound Code
}

// hasSite reports whether the path names a Site.
func (r *Route) hasSite() bool { return hasParam(r.Path, "siteId") }

// Principal is an authenticated caller.
type Principal = auth.Principal

// Authenticator authenticates callers. *auth.Authenticator implements it.
type Authenticator interface {
	// Authenticate verifies an Authorization header that a client sent from an address. Its errors
	// are auth.ErrNoCredentials, auth.ErrInvalidToken, and models.ErrUnavailable if the token
	// cannot be verified now.
	Authenticate(ctx context.Context, authorization string, from netip.Addr) (Principal, error)
}

// Sites finds the Sites of an organisation. *models.Store implements it.
type Sites interface {
	// Site returns a Site of the organisation, or models.ErrNotFound.
	Site(ctx context.Context, organisation models.OrganisationID, id models.SiteID) (models.Site, error)
}

// Limiter limits the rate of requests. *ratelimit.Limiter implements it.
type Limiter interface {
	// Take counts a request of a client in a class, and decides whether it is allowed. If it cannot
	// count, it allows the request. It takes at most 50 ms.
	Take(ctx context.Context, client models.ClientID, class ratelimit.Class) ratelimit.Decision
}
