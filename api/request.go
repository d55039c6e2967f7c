package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"partnerbilling/api/strictjson"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// Request is one request on its way through the checks to its handler, and the means to answer it. All strings that it
// hands out are copies that may be kept. It is valid until the handler returns.
type Request struct {
	Principal      Principal
	Site           models.Site      // of routes with {siteId}: one of the caller's own
	Body           strictjson.Value // the object of a JSON route; Absent if the body is optional and not there
	Form           []byte           // the body of a form route
	IdempotencyKey string           // "" if there is none

	server      *Server
	began       time.Time
	fast        *fasthttp.RequestCtx
	fiber       *fiber.Ctx
	route       *Route // nil until the router has found it
	trace       models.TraceID
	path        string
	param       string
	query       map[string][]string // without what cannot be read
	queryFaults []Fault             // of a list's query, until somebody answers them
	bodyRead    bool
	logged      console.Body    // the beginning of the body, if requests are logged
	slot        slot            // while it runs
	draining    context.Context // ends when the server begins to shut down
}

// TraceID is the id of this request.
func (r *Request) TraceID() models.TraceID { return r.trace }

// Param is the route's own path parameter, decoded.
func (r *Request) Param() string { return r.param }

// Query is a query parameter and whether it was given. It may be given empty.
func (r *Request) Query(name string) (string, bool) {
	values := r.query[name]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// QueryInt is an integer query parameter from minimum to maximum and whether it was given. The error is the answer to a
// value that it must not have.
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

// RefuseQuery makes the error about a query parameter's value; complaint completes "<name> …".
func (r *Request) RefuseQuery(name, complaint string) error {
	return RefuseField(inArea(r.route.Area, "invalid-parameter"), name, complaint)
}

// BodyError turns the faults of the decoded body into the answer, in the route's area; nil if there are none.
func (r *Request) BodyError(fields strictjson.Fields) error {
	return BodyError(r.route.Area, fields.Faults())
}

// Header is a header of the request, "" if it is not there.
func (r *Request) Header(name string) string { return string(r.fast.Request.Header.Peek(name)) }

// MaxWait is the longest that Prefer: wait holds an answer.
const MaxWait = 30 * time.Second

// PreferWait is how long the client would wait for something to happen (Prefer: wait=N), at most MaxWait; 0 if it did not
// say so. A preference that cannot be understood is ignored, as preferences are.
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

// Fiber is the request as Fiber has it, for answers that Request has no method for. Its strings are not copies.
func (r *Request) Fiber() *fiber.Ctx { return r.fiber }

// headers are all values of a header.
func (r *Request) headers(name string) []string {
	var values []string
	for _, v := range r.fast.Request.Header.PeekAll(name) {
		values = append(values, string(v))
	}
	return values
}

// canonicalPath is the path of the route on its Site, however the client has encoded it.
func (r *Request) canonicalPath() string {
	return strings.Replace(r.route.Path, "{siteId}", r.Site.ID.String(), 1)
}

func (r *Request) rawParam(name string) string { return strings.Clone(r.fiber.Params(name)) }

// area is the error area of the route, or "requests" before there is one.
func (r *Request) area() string {
	if r.route == nil || r.route.Area == "" {
		return "requests"
	}
	return r.route.Area
}

// hasBody reports whether the request announces a body; one of length 0 is none.
func (r *Request) hasBody() bool {
	return r.fast.Request.Header.ContentLength() != 0 && r.fast.RequestBodyStream() != nil
}

// isEmptyBody reports whether a body of unannounced length turns out to be none. It waits for the body to begin.
func (r *Request) isEmptyBody(ctx context.Context) (bool, error) {
	if r.fast.Request.Header.ContentLength() >= 0 {
		return false, nil
	}
	var first [1]byte
	var err error
	busy := r.withoutSlot(ctx, func() { _, err = io.ReadFull(r.fast.RequestBodyStream(), first[:]) })
	switch {
	case errors.Is(err, io.EOF):
		r.bodyRead = true
		return true, busy
	case err != nil:
		return false, bodyReadError(err)
	}
	return false, busy
}

// arrivedBody is how much of a body of known length is there before a request begins (fasthttp sees to it).
const arrivedBody = 8 << 10

// readAll reads the body. One over the limit is refused, on its announced length alone if it has one. A client that takes
// its time to send a large one holds no slot meanwhile.
func (r *Request) readAll(ctx context.Context, limit int) ([]byte, error) {
	stream := r.fast.RequestBodyStream()
	length := r.fast.Request.Header.ContentLength()
	if stream == nil || length == 0 || r.bodyRead {
		return nil, nil
	}
	if length > limit {
		return nil, tooLarge(limit)
	}
	var body []byte
	var err, busy error
	read := func() { body, err = readLimited(stream, length, limit) }
	if 0 < length && length <= arrivedBody {
		read()
	} else {
		busy = r.withoutSlot(ctx, read)
	}
	switch {
	case err != nil:
		return nil, bodyReadError(err)
	case len(body) > limit:
		return nil, tooLarge(limit)
	}
	r.bodyRead = true
	return body, busy
}

// readLimited reads one byte more than the limit at most.
func readLimited(stream io.Reader, length, limit int) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(io.LimitReader(stream, int64(limit)+1))
	}
	body := make([]byte, length)
	_, err := io.ReadFull(stream, body)
	return body, err
}

func tooLarge(limit int) error {
	e := Refuse(BodyTooLarge, "")
	e.Faults[0].Message = fmt.Sprintf("The body must have at most %d bytes.", limit)
	e.Close = true
	return e
}

// bodyReadError: the body did not arrive in time, or its framing is broken.
func bodyReadError(err error) error {
	code := MalformedRequest
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		code = RequestTimeout
	}
	return unreadable(code, err)
}

// unreadable refuses a request after which nothing on its connection can be trusted.
func unreadable(code Code, cause error) *Error {
	e := Refuse(code, "")
	e.Cause, e.Close = cause, true
	return e
}

// receiveError is the answer to a request that could not even be read.
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

// isMediaType reports whether a Content-Type is of the wanted type and, if it names a charset, in UTF-8.
func isMediaType(header, want string) bool {
	mediaType, params, err := mime.ParseMediaType(header)
	if err != nil || mediaType != want {
		return false
	}
	charset, ok := params["charset"]
	return !ok || slices.Contains([]string{"utf-8", "utf8", "csutf8"}, strings.ToLower(charset))
}

var errPathEncoding = errors.New("api: path segment is not percent-encoded UTF-8")

// decodePath decodes a path segment exactly once; a plus sign stays one.
func decodePath(raw string) (string, error) {
	decoded, err := url.PathUnescape(raw)
	if err != nil || !utf8.ValidString(decoded) {
		return "", errPathEncoding
	}
	return decoded, nil
}

// parseQuery splits a query into decoded parameters, the names in the order of first appearance, and the names (as far
// as they can be read) of parameters that are not percent-encoded UTF-8.
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

func decodeQuery(raw string) (string, error) {
	decoded, err := url.QueryUnescape(raw)
	if err != nil || !utf8.ValidString(decoded) {
		return "", errPathEncoding
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

// statusName is the label of a status in the metrics.
func statusName(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}
