package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Call is a call of any operation of the API. The methods of Client cover all operations. A Call is
// for programs that pass the data of the API on unchanged.
type Call struct {
	Method string
	Path   string      // begins with a slash; percent-encoded, with its query
	Body   any         // sent as JSON; nil for none
	Header http.Header // additional headers
	// Repeatable says that repeating the call has no further effect, as with a GET or an
	// idempotency key. The client does not repeat any other call after a lost response or a 5xx.
	Repeatable bool
	// Raw says that a successful response is not JSON, such as a CSV file.
	Raw bool
}

// Response is a successful response.
type Response struct {
	Status  int
	Header  http.Header
	Data    json.RawMessage // the field data of the body
	TraceID string
	Body    []byte // of a raw call
}

// Do makes a call. It has the access token, the retries and the errors of all other methods.
func (c *Client) Do(ctx context.Context, call Call) (Response, error) {
	if !strings.HasPrefix(call.Path, "/") { // the access token must not reach another server
		return Response{}, fmt.Errorf("client: the path %q does not begin with a slash", call.Path)
	}
	answer, err := c.do(ctx, request{
		method: call.Method, path: call.Path, body: call.Body, header: call.Header, repeatable: call.Repeatable,
		raw: call.Raw,
	}, nil)
	return Response{
		Status: answer.status, Header: answer.header, Data: answer.data, TraceID: answer.trace, Body: answer.body,
	}, err
}

// LinkPath returns the path and the query of a list's link, such as nextHref, for a Call. The
// client follows links at its own base URL, so that the access token reaches no other server.
func (c *Client) LinkPath(href string) (string, error) {
	link, err := url.Parse(href)
	if err != nil {
		return "", fmt.Errorf("client: the link of a page: %w", err)
	}
	target := link.RequestURI()
	base, err := url.Parse(c.cfg.BaseURL)
	if err != nil {
		return "", fmt.Errorf("client: %w", err)
	}
	if rest, ok := strings.CutPrefix(target, base.EscapedPath()); ok && strings.HasPrefix(rest, "/") {
		target = rest
	}
	if !strings.HasPrefix(target, "/") {
		return "", fmt.Errorf("client: the link of a page has no path: %q", href)
	}
	return target, nil
}

// Path percent-encodes each segment and joins them into a path: "/a/b".
func Path(segments ...string) string { return path(segments...) }

// Query encodes the values that are not empty as a query with its question mark. It returns "" if
// there are none.
func Query(values map[string]string) string {
	encoded := url.Values{}
	for name, value := range values {
		if value != "" {
			encoded.Set(name, value)
		}
	}
	if len(encoded) == 0 {
		return ""
	}
	return "?" + encoded.Encode()
}
