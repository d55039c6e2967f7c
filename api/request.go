package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Request is a request and the means to answer it. It is valid until its handler returns. Strings
// from its methods are copies and may be kept.
type Request struct {
	Principal      Principal        // the authenticated caller; zero on a public route
	Site           models.Site      // the caller's Site in the path; zero for a route without {siteId}
	Body           strictjson.Value // the body of a JSON route; Absent if an optional body is absent
	Form           []byte           // the body of a form route
	IdempotencyKey string           // the header Idempotency-Key; "" if it is absent

	server       *Server
	began        time.Time
	fast         *fasthttp.RequestCtx
	fiber        *fiber.Ctx
	route        *Route // nil before routing
	trace        models.TraceID
	address      netip.Addr // of the client; zero if it is unknown
	path         string
	param        string
	query        map[string][]string // the well-formed parameters
	queryFaults  []Fault             // faults of a list's query that are not answered yet
	bodyRead     bool
	raw          []byte          // the body, if a request log keeps it
	buffer       []byte          // of a large body; serves another request after this one
	errorCode    Code            // of the first fault that is answered; "" for none
	slot         slot            // held while the request runs
	lease        *byteLease      // held while the request keeps a body over arrivedBody; nil without one
	handlesLarge bool            // the request holds one of the permits to handle a large body
	draining     context.Context // ends when the server begins to shut down
}

// TraceID returns the id of this request.
func (r *Request) TraceID() models.TraceID { return r.trace }

// Param returns the decoded path parameter other than {siteId}, "" for a route without one.
func (r *Request) Param() string { return r.param }

// Query returns a query parameter and whether it is present. Its value may be empty.
func (r *Request) Query(name string) (string, bool) {
	values := r.query[name]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// QueryInt returns an integer query parameter from minimum to maximum, and whether it is present.
// The error is the refusal of an invalid value.
func (r *Request) QueryInt(name string, minimum, maximum int64) (int64, bool, error) {
	text, ok := r.Query(name)
	if !ok {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text || n < minimum || n > maximum {
		return 0, true, r.RefuseQuery(name, fmt.Sprintf("must be an integer from %d to %d", minimum, maximum))
	}
	return n, true, nil
}

// RefuseQuery returns an error about a query parameter. Its message is the name, a space and the
// complaint.
func (r *Request) RefuseQuery(name, complaint string) error {
	return RefuseField(inArea(r.area(), "invalid-parameter"), name, complaint)
}

// BodyError turns the faults of the decoded body into an error in the route's area. It returns nil
// without faults.
func (r *Request) BodyError(fields strictjson.Fields) error {
	return BodyError(r.area(), fields.Faults())
}

// clockTimeout bounds a reading of the database's clock for a request that is refused anyway.
const clockTimeout = 250 * time.Millisecond

// joinExpiryFault adds the fault of an expiry that check refuses to faults, the error about a
// refused body. One answer then lists every fault. An expiry of 0 is absent, and faults name a
// negative one already. If the clock cannot be read within clockTimeout, the answer lists faults
// alone.
func (r *Request) joinExpiryFault(
	ctx context.Context, faults error, store *models.Store, expiresAt models.Millis,
	check func(expiresAt, now models.Millis) error,
) error {
	if expiresAt <= 0 {
		return faults
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	now, err := store.Now(ctx)
	if err != nil {
		return faults
	}
	var field *models.FieldError
	if errors.As(check(expiresAt, now), &field) {
		return joinFaults(faults, errorOf(r.area(), field).Faults)
	}
	return faults
}

// Header returns a header of the request, "" if it is absent.
func (r *Request) Header(name string) string { return string(r.fast.Request.Header.Peek(name)) }

// MaxWait is the longest time for which an answer is held by Prefer: wait.
const MaxWait = 30 * time.Second

// PreferWait returns the time that the client asks for by Prefer: wait=N, in whole seconds, at most
// MaxWait. It returns 0 if the preference is absent or malformed (RFC 7240).
func (r *Request) PreferWait() time.Duration {
	value, ok := preference(r.headers("Prefer"), "wait")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return time.Duration(min(n, uint64(MaxWait/time.Second))) * time.Second
}

// Fiber returns Fiber's context, for answers that Request has no method for. Strings from this
// context are valid only until the handler returns.
func (r *Request) Fiber() *fiber.Ctx { return r.fiber }

// headers returns all values of a header.
func (r *Request) headers(name string) []string {
	var values []string
	for _, v := range r.fast.Request.Header.PeekAll(name) {
		values = append(values, string(v))
	}
	return values
}

// canonicalPath returns the route's path with the Site's id in canonical form, however the client
// encoded it. It is for routes without another parameter.
func (r *Request) canonicalPath() string {
	return strings.Replace(r.route.Path, "{siteId}", r.Site.ID.String(), 1)
}

// idempotencyKey returns the Idempotency-Key with its scope and the fingerprint of the body, nil
// without a key.
func idempotencyKey(r *Request) *models.IdempotencyKey {
	if r.IdempotencyKey == "" {
		return nil
	}
	fingerprint := sha256.Sum256(strictjson.Canonical(r.Body))
	return &models.IdempotencyKey{
		ClientID: r.Principal.ClientID, Path: r.canonicalPath(), Key: r.IdempotencyKey, Fingerprint: fingerprint[:],
	}
}

// rawParam returns a path parameter as the client encoded it.
func (r *Request) rawParam(name string) string { return strings.Clone(r.fiber.Params(name)) }

// area returns the area of the error codes of the route, "requests" before routing.
func (r *Request) area() string {
	if r.route == nil || r.route.Area == "" {
		return "requests"
	}
	return r.route.Area
}

// receiveError returns the answer to a request that could not be read because of err.
func receiveError(err error) *Error {
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	code := MalformedRequest
	switch {
	case errors.As(err, &small):
		code = HeadersTooLarge
	case errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &network) && network.Timeout():
		code = RequestTimeout
	}
	return unreadable(code, err)
}

// isMediaType reports whether a Content-Type is the wanted media type. If it names a charset, that
// must be UTF-8.
func isMediaType(header, want string) bool {
	mediaType, params, err := mime.ParseMediaType(header)
	if err != nil || mediaType != want {
		return false
	}
	charset, ok := params["charset"]
	return !ok || slices.Contains([]string{"utf-8", "utf8", "csutf8"}, strings.ToLower(charset))
}

// errEncoding is the error of decodePath and decodeQuery.
var errEncoding = errors.New("api: not percent-encoded UTF-8")

// decodePath decodes a path segment exactly once. A plus sign stays a plus sign.
func decodePath(raw string) (string, error) {
	decoded, err := url.PathUnescape(raw)
	if err != nil || !utf8.ValidString(decoded) {
		return "", errEncoding
	}
	return decoded, nil
}

// parseQuery splits a query into decoded parameters. order lists their names by first appearance.
// bad lists the names of parameters that are not percent-encoded UTF-8; it has "?" for a malformed
// name.
func parseQuery(raw string) (params map[string][]string, order, bad []string) {
	params = make(map[string][]string)
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, nameErr := decodeQuery(rawName)
		value, valueErr := decodeQuery(rawValue)
		if nameErr != nil {
			name = "?"
		}
		if nameErr != nil || valueErr != nil {
			bad = append(bad, name)
			continue
		}
		if len(params[name]) == 0 {
			order = append(order, name)
		}
		params[name] = append(params[name], value)
	}
	return params, order, bad
}

// decodeQuery decodes a name or a value of a query. A plus sign is a space.
func decodeQuery(raw string) (string, error) {
	decoded, err := url.QueryUnescape(raw)
	if err != nil || !utf8.ValidString(decoded) {
		return "", errEncoding
	}
	return decoded, nil
}

// showName shortens the name of an unknown parameter for an error answer.
func showName(name string) string {
	const most = 64
	if utf8.RuneCountInString(name) <= most {
		return name
	}
	return string([]rune(name)[:most]) + "…"
}

// statusName returns the label of a status in the metrics: its number, or "other" for an unknown
// status.
func statusName(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}
