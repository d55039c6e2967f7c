package api

import (
	"context"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Audience says whose clients a route is for.
type Audience uint8

// The audiences.
const (
	Partner     Audience = iota + 1 // clients of an organisation
	CustomerApp                     // the customer app's backend; its clients belong to no organisation
	Public                          // everybody; no token
)

// Versioning says what a route makes of the header Svc-Api-Version.
type Versioning uint8

// How the version header is treated.
const (
	VersionIgnored  Versioning = iota // not looked at
	VersionOptional                   // must be right if it is there
	VersionRequired                   // must be there and right
)

// BodyKind says what body a route takes.
type BodyKind uint8

// The kinds of bodies.
const (
	NoBody       BodyKind = iota // a body is not looked at, unless it is over the limit
	JSONBody                     // one JSON object
	OptionalJSON                 // one JSON object, or no body at all
	FormBody                     // application/x-www-form-urlencoded, left to the handler as bytes
)

// RateClass names a limit on requests.
type RateClass string

// The rate classes. Every request of a client counts against RateDefault, one of another class also against that.
const (
	RateDefault RateClass = "default"
	RateTokens  RateClass = "tokens"  // access tokens issued
	RateBatches RateClass = "batches" // what takes the body of a batch, or makes one
)

// BodyBounds bounds the body of a request.
type BodyBounds struct {
	Bytes int
	JSON  strictjson.Limits // of a JSON body
}

// maxBatchBytes is the largest body that any route takes.
const maxBatchBytes = 1 << 20

// BatchBody bounds the body of a batch: of its submission and its validation.
var BatchBody = BodyBounds{Bytes: maxBatchBytes, JSON: strictjson.Limits{Values: 32_768, UnknownBytes: 16 << 10}}

// ordinaryBody bounds every other body.
var ordinaryBody = BodyBounds{Bytes: 64 << 10, JSON: strictjson.Limits{Values: 2_048, UnknownBytes: 2 << 10}}

// Handler answers a request that has passed every check of its route. What it returns as an error becomes the answer.
// The context ends with the time that the route allows, and carries the trace id and the span.
type Handler func(ctx context.Context, r *Request) error

// Route is one row of the route table. The checks before the handler follow from it.
type Route struct {
	Method string // GET includes HEAD
	Path   string // as in the API description: /billing/sites/{siteId}/customers
	// Area is that of the codes for faults in the route's parameters and fields, if the catalogue has them there.
	Area     string
	Audience Audience
	Scope    models.Scope // that the token must have; "" for any of its audience
	Version  Versioning
	Rate     RateClass // default RateDefault
	Query    []string  // the parameters it knows; any other, and a repeated one, is refused
	// Paged routes also take a cursor, alone. Anything wrong with a query that has one is an invalid pagination link.
	Paged bool
	Body  BodyKind
	// Bounds are those of the body; default ordinaryBody.
	Bounds BodyBounds
	// Param is the path parameter beside siteId, if there is one.
	Param Param
	// Page routes answer people: errors are pages too, and a query, which links may pick up on their way, is not looked at.
	Page bool
	// Foreign routes answer in the form of another standard, their errors included: query and body are left to the handler.
	OAuth bool
	// Idempotent routes take the header Idempotency-Key.
	Idempotent bool
	// Always routes are answered however much there is to do.
	SkipAdmission bool
	// Timeout is how long an answer may take; default Config.RequestTimeout.
	Timeout time.Duration
	Handler Handler
}

// Param is what a route's own path parameter must be. One that is not properly encoded or fails the check names
// nothing that could exist, and is answered as not found.
type Param struct {
	Name     string
	Check    func(string) error // may be nil
	NotFound Code
}

// hasSite reports whether the path names a Site.
func (r *Route) hasSite() bool { return hasParam(r.Path, "siteId") }

// Principal is who calls.
type Principal = auth.Principal

// Authenticator recognises callers; *auth.Authenticator is one.
type Authenticator interface {
	// Authenticate judges an Authorization header. Errors are auth.ErrNoCredentials, auth.ErrInvalidToken, and
	// models.ErrUnavailable if it cannot tell now.
	Authenticate(ctx context.Context, authorization string) (Principal, error)
}

// Sites guards the boundary between organisations; *models.Store does.
type Sites interface {
	// Site is a Site of the organisation; models.ErrNotFound if it is not.
	Site(ctx context.Context, organisation models.OrganisationID, id models.SiteID) (models.Site, error)
}

// Limiter counts requests.
type Limiter interface {
	// Take counts one request. A limiter that cannot tell allows it, and takes no longer than 50 ms to do so.
	Take(ctx context.Context, client models.ClientID, class RateClass) Decision
}

// Decision is what a Limiter says to a request.
type Decision struct {
	Allowed    bool
	RetryAfter time.Duration // if not allowed
	Limits     []Limit       // every limit that the request counts against; none if limits are off
}

// Limit is one limit on requests and what is left of it.
type Limit struct {
	Name      string        // a token, such as the rate class
	Quota     int64         // requests in a window
	Window    time.Duration // whole seconds
	Remaining int64
	Reset     time.Duration // until the quota is whole again
	Unknown   bool          // what is left could not be found out
}
