package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"partnerbilling/api/docs"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Code is the part of an error code after its common prefix: "<area>:<name>". An area groups codes:
// those of a noun, such as "batches", or those that any route may answer, "requests".
type Code string

// URN returns the code as it appears on the wire.
func (c Code) URN() string { return docs.CodePrefix + string(c) }

// Entry is one row of the error catalogue.
type Entry struct {
	Code    Code
	Status  int    // the HTTP status of an answer with this code
	Message string // the default display message of a fault
}

// The codes of the error catalogue. Every error answer has one of them.
const (
	MalformedRequest      Code = "requests:malformed-request"
	MalformedJSON         Code = "requests:malformed-json"
	MissingField          Code = "requests:missing-field"
	InvalidField          Code = "requests:invalid-field"
	InvalidParameter      Code = "requests:invalid-parameter"
	InvalidLink           Code = "requests:invalid-pagination-link"
	InvalidHeader         Code = "requests:invalid-header"
	UnsupportedAPIVersion Code = "requests:unsupported-api-version"
	NotFound              Code = "requests:not-found"
	MethodNotAllowed      Code = "requests:method-not-allowed"
	RequestTimeout        Code = "requests:request-timeout"
	IdempotencyInFlight   Code = "requests:idempotency-key-in-flight"
	BodyTooLarge          Code = "requests:body-too-large"
	UnsupportedMediaType  Code = "requests:unsupported-media-type"
	IdempotencyReused     Code = "requests:idempotency-key-reused"
	RateLimited           Code = "requests:rate-limited"
	QuotaExceeded         Code = "requests:quota-exceeded"
	HeadersTooLarge       Code = "requests:headers-too-large"
	Internal              Code = "requests:internal"
	Unavailable           Code = "requests:unavailable"

	InvalidToken      Code = "auth:invalid-token"
	InsufficientScope Code = "auth:insufficient-scope"

	SiteNotAccessible Code = "sites:site-not-accessible"

	TraceNotFound Code = "requests:trace-not-found"

	PaymentIntentNotFound       Code = "requests:payment-intent-not-found"
	PaymentIntentNotCancellable Code = "requests:payment-intent-not-cancellable"
	PaymentIntentTaken          Code = "requests:payment-intent-taken"
	PaymentIntentExpired        Code = "requests:payment-intent-expired"
	PaymentIntentCancelled      Code = "requests:payment-intent-cancelled"

	CustomersInvalidParameter Code = "customers:invalid-parameter"
	CustomersInvalidLink      Code = "customers:invalid-pagination-link"
	CustomerNotFound          Code = "customers:customer-not-found"
	CustomerLinkExpired       Code = "customers:link-expired"
	CustomerLinkNotFound      Code = "customers:link-not-found"

	InvitationsMissingField Code = "invitations:missing-field"
	InvitationsInvalidField Code = "invitations:invalid-field"
	CustomerReferenceActive Code = "invitations:customer-reference-active"
	NoLiveInvitation        Code = "invitations:no-live-invitation"

	BatchesMissingField     Code = "batches:missing-field"
	BatchesInvalidField     Code = "batches:invalid-field"
	BatchesInvalidParameter Code = "batches:invalid-parameter"
	BatchesInvalidLink      Code = "batches:invalid-pagination-link"
	DuplicateRowReference   Code = "batches:duplicate-row-reference"
	BatchNotFound           Code = "batches:batch-not-found"
	BatchReferenceConflict  Code = "batches:batch-reference-conflict"
	BatchInProgress         Code = "batches:batch-in-progress"
	NothingToRetry          Code = "batches:nothing-to-retry"
	AlreadyRetried          Code = "batches:already-retried"

	WebhooksMissingField     Code = "webhooks:missing-field"
	WebhooksInvalidField     Code = "webhooks:invalid-field"
	WebhooksInvalidParameter Code = "webhooks:invalid-parameter"
	WebhooksInvalidLink      Code = "webhooks:invalid-pagination-link"
	WebhookEndpointNotFound  Code = "webhooks:endpoint-not-found"
	WebhookEventNotFound     Code = "webhooks:event-not-found"
	WebhookSecretNotFound    Code = "webhooks:secret-not-found"

	SignupsMissingField Code = "signups:missing-field"
	SignupsInvalidField Code = "signups:invalid-field"
	SignupNotFound      Code = "signups:signup-not-found"
	SignupTaken         Code = "signups:signup-taken"
	SignupExpired       Code = "signups:signup-expired"
	SignupRevoked       Code = "signups:signup-revoked"
)

// invalidLinkMessage names nextHref, because Shape B has no target.
const invalidLinkMessage = "nextHref is not valid or no longer valid. Restart pagination from the first page."

// catalogue lists every code once, in the order of the documentation.
var catalogue = []Entry{
	{MalformedRequest, http.StatusBadRequest, "The request is not valid HTTP."},
	{MalformedJSON, http.StatusBadRequest, "The body is not acceptable JSON."},
	{MissingField, http.StatusBadRequest, "A required field is missing."},
	{InvalidField, http.StatusBadRequest, "A field has a value that it must not have."},
	{InvalidParameter, http.StatusBadRequest,
		"A query parameter is unknown, repeated or has a value that it must not have."},
	{InvalidLink, http.StatusBadRequest, invalidLinkMessage},
	{InvalidHeader, http.StatusBadRequest, "A header has a value that it must not have."},
	{UnsupportedAPIVersion, http.StatusBadRequest, "The header Svc-Api-Version must be " + APIVersion + "."},
	{NotFound, http.StatusNotFound, "There is nothing at this path."},
	{MethodNotAllowed, http.StatusMethodNotAllowed,
		"This path does not take this method; the header Allow lists those it takes."},
	{RequestTimeout, http.StatusRequestTimeout, "The request took too long to arrive."},
	{IdempotencyInFlight, http.StatusConflict,
		"The first request with this Idempotency-Key is still running. Try again shortly."},
	{BodyTooLarge, http.StatusRequestEntityTooLarge, "The body is too large."},
	{UnsupportedMediaType, http.StatusUnsupportedMediaType,
		"The body must be application/json in UTF-8, without a content encoding."},
	{IdempotencyReused, http.StatusUnprocessableEntity, "This Idempotency-Key was used before with another body."},
	{RateLimited, http.StatusTooManyRequests,
		"Too many requests. Try again after the time that Retry-After gives, in seconds."},
	{QuotaExceeded, http.StatusTooManyRequests, "A quota of your organisation would be exceeded."},
	{HeadersTooLarge, http.StatusRequestHeaderFieldsTooLarge,
		"The request line and the headers together are too large."},
	{Internal, http.StatusInternalServerError,
		"Something went wrong on our side. Quote the traceId when you ask about it."},
	{Unavailable, http.StatusServiceUnavailable,
		"The service cannot answer now. Try again after the time that Retry-After gives, in seconds."},

	{InvalidToken, http.StatusUnauthorized, "The access token is missing, expired or not valid here."},
	{InsufficientScope, http.StatusForbidden, "The access token does not have the scope for this."},

	{SiteNotAccessible, http.StatusForbidden, "There is no such Site in your organisation."},

	{TraceNotFound, http.StatusNotFound,
		"No request of your organisation with this traceId has stored anything that is still there."},

	{PaymentIntentNotFound, http.StatusNotFound, "There is no such payment intent."},
	{PaymentIntentNotCancellable, http.StatusConflict,
		"The payment intent cannot be cancelled any more: a customer has begun to pay it, or it has ended."},
	{PaymentIntentTaken, http.StatusConflict, "Another customer pays this payment intent."},
	{PaymentIntentExpired, http.StatusGone, "The payment intent has expired."},
	{PaymentIntentCancelled, http.StatusGone, "The payment intent has been cancelled."},

	{CustomersInvalidParameter, http.StatusBadRequest,
		"A query parameter is unknown, repeated or has a value that it must not have."},
	{CustomersInvalidLink, http.StatusBadRequest, invalidLinkMessage},
	{CustomerNotFound, http.StatusNotFound, "This Site has no customer with that customerReference."},
	{CustomerLinkExpired, http.StatusConflict, "The invitation has expired, so there is nothing to revoke."},
	{CustomerLinkNotFound, http.StatusNotFound, "There is no such link."},

	{InvitationsMissingField, http.StatusBadRequest, "A required field is missing."},
	{InvitationsInvalidField, http.StatusBadRequest, "A field has a value that it must not have."},
	{CustomerReferenceActive, http.StatusConflict,
		"The customerReference has an invitation or a linked customer already."},
	{NoLiveInvitation, http.StatusConflict, "The customerReference has no invitation that can still be accepted."},

	{BatchesMissingField, http.StatusBadRequest, "A required field is missing."},
	{BatchesInvalidField, http.StatusBadRequest, "A field has a value that it must not have."},
	{BatchesInvalidParameter, http.StatusBadRequest,
		"A query parameter is unknown, repeated or has a value that it must not have."},
	{BatchesInvalidLink, http.StatusBadRequest, invalidLinkMessage},
	{DuplicateRowReference, http.StatusBadRequest, "The rowReference occurs twice in the batch."},
	{BatchNotFound, http.StatusNotFound, "This Site has no batch with that batchReference."},
	{BatchReferenceConflict, http.StatusConflict, "The batchReference belongs to a batch with another body."},
	{BatchInProgress, http.StatusConflict, "The batch has rows that are not settled yet."},
	{NothingToRetry, http.StatusConflict, "The batch has no row whose outcome may succeed later."},
	{AlreadyRetried, http.StatusConflict, "The batch has been retried already, under another batchReference."},

	{WebhooksMissingField, http.StatusBadRequest, "A required field is missing."},
	{WebhooksInvalidField, http.StatusBadRequest, "A field has a value that it must not have."},
	{WebhooksInvalidParameter, http.StatusBadRequest,
		"A query parameter is unknown, repeated or has a value that it must not have."},
	{WebhooksInvalidLink, http.StatusBadRequest, invalidLinkMessage},
	{WebhookEndpointNotFound, http.StatusNotFound, "No endpoint is configured here."},
	{WebhookEventNotFound, http.StatusNotFound, "There is no such event in your organisation."},
	{WebhookSecretNotFound, http.StatusNotFound, "There is no secret to rotate: it comes with your first endpoint."},

	{SignupsMissingField, http.StatusBadRequest, "A required field is missing."},
	{SignupsInvalidField, http.StatusBadRequest, "A field has a value that it must not have."},
	{SignupNotFound, http.StatusNotFound, "There is no such invitation."},
	{SignupTaken, http.StatusConflict, "Another customer has completed this sign-up."},
	{SignupExpired, http.StatusGone, "The invitation has expired."},
	{SignupRevoked, http.StatusGone, "The invitation has been revoked."},
}

// entries are the rows of the catalogue by code.
var entries = indexCatalogue()

func indexCatalogue() map[Code]Entry {
	m := make(map[Code]Entry, len(catalogue))
	for _, e := range catalogue {
		m[e.Code] = e
	}
	return m
}

// helpPaths are the addresses of the codes' explanations. They are computed once, because refusals
// under load must cost little.
var helpPaths = func() map[Code]string {
	m := make(map[Code]string, len(catalogue))
	for _, e := range catalogue {
		m[e.Code] = docs.HelpPath(string(e.Code))
	}
	return m
}()

// Catalogue returns every error code of the service, in the order of the documentation.
func Catalogue() []Entry { return append([]Entry(nil), catalogue...) }

// inArea returns the code of that name in the area if the catalogue has it, else the code of that
// name in the area "requests".
func inArea(area, name string) Code {
	if c := Code(area + ":" + name); entries[c].Status != 0 {
		return c
	}
	return Code("requests:" + name)
}

// MaxFaults is the largest number of faults in one answer.
const MaxFaults = 100

// Fault is one entry of an error answer.
type Fault struct {
	Code    Code
	Target  string // the field, parameter, header or path segment; "" if there is none
	Message string // shown to the partner; begins with the field's name if it concerns a field
}

// Error is an answer that refuses a request. Handlers return it. Server.fail also makes an Error of
// some errors of package models. It answers any other error with 500, or with 503 if the error is
// temporary.
type Error struct {
	Faults     []Fault       // at least one, all of one status; the answer lists at most MaxFaults
	RetryAfter time.Duration // the Retry-After header; 0 for none
	Challenge  string        // the WWW-Authenticate header of a 401 or 403; "" for none
	Close      bool          // the connection is closed after the answer
	Cause      error         // logged, never shown
}

// Error describes the first fault and the cause, for logs.
func (e *Error) Error() string {
	f := e.Faults[0]
	s := fmt.Sprintf("api: %s %s: %s", f.Code, f.Target, f.Message)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Status returns the HTTP status of the answer.
func (e *Error) Status() int { return entries[e.Faults[0].Code].Status }

// Add appends a fault and returns e. The fault must have the same status as the others. An empty
// message is replaced by the catalogue's.
func (e *Error) Add(f Fault) *Error {
	if f.Message == "" {
		f.Message = entries[f.Code].Message
	}
	e.Faults = append(e.Faults, f)
	return e
}

// Refuse returns an error with one fault, which has the catalogue's message. The answer leaves out
// an empty target.
func Refuse(code Code, target string) *Error {
	return (&Error{}).Add(Fault{Code: code, Target: target})
}

// RefuseField returns an error with one fault about the target: a field, parameter or header. Its
// message is the target, a space and the complaint.
func RefuseField(code Code, target, complaint string) *Error {
	return (&Error{}).Add(Fault{Code: code, Target: target, Message: target + " " + complaint})
}

// BodyError turns the faults of a decoded body into an error with codes of the area, such as
// "batches". It returns nil without faults.
func BodyError(area string, faults []strictjson.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	e := &Error{}
	for _, f := range faults {
		e.Add(Fault{Code: faultCode(area, f.Kind), Target: f.Target, Message: f.Target + " " + f.Message})
	}
	return e
}

// faultCode returns the code of a fault in a body: of the area, except for malformed JSON.
func faultCode(area string, kind strictjson.FaultKind) Code {
	switch kind {
	case strictjson.Missing:
		return inArea(area, "missing-field")
	case strictjson.Malformed:
		return MalformedJSON
	default:
		return inArea(area, "invalid-field")
	}
}

// retryUnavailable is the Retry-After of a 503, and of an Idempotency-Key in flight.
const retryUnavailable = time.Second

// errorOf maps the error of a handler to its answer. area is the area of the route. Details of an
// unknown error never reach the client.
func errorOf(area string, err error) *Error {
	var refusal *Error
	var field *models.FieldError
	var quota *models.QuotaError
	switch {
	case errors.As(err, &refusal) && len(refusal.Faults) > 0:
		return refusal
	case errors.As(err, &field):
		e := RefuseField(inArea(area, "invalid-field"), field.Field, field.Message)
		e.Cause = err
		return e
	case errors.As(err, &quota):
		e := Refuse(QuotaExceeded, "")
		e.Faults[0].Message = fmt.Sprintf("Your organisation's quota of %s (%d) would be exceeded.", quota.Noun,
			quota.Limit)
		e.RetryAfter = quota.RetryAfter
		return e
	case isUnavailable(err):
		e := Refuse(Unavailable, "")
		e.RetryAfter, e.Cause = retryUnavailable, err
		return e
	case errors.Is(err, models.ErrIdempotencyKeyReused):
		return Refuse(IdempotencyReused, headerIdempotencyKey)
	case errors.Is(err, models.ErrIdempotencyKeyInFlight):
		e := Refuse(IdempotencyInFlight, headerIdempotencyKey)
		e.RetryAfter = retryUnavailable
		return e
	default:
		e := Refuse(Internal, "")
		e.Cause = err
		return e
	}
}

// isUnavailable reports whether an error is temporary: a dependency or a slot was unavailable, or
// the request's context has ended.
func isUnavailable(err error) bool {
	return errors.Is(err, models.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}

// isShapeB reports whether error answers at a path have Shape B (messages alone) instead of Shape A
// (codes, messages and targets).
func isShapeB(path string) bool { return inTree(path, "/checkout") }

// inTree reports whether a path is root or below it.
func inTree(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}
