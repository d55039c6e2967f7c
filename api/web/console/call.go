package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"partnerbilling/api/docs"
	"partnerbilling/models"
)

// Call is a request to the API, which the console makes in this process.
type Call struct {
	Method, Path  string // the path with its query, percent-encoded
	Header        http.Header
	Body          []byte // nil: none
	RemoteAddress string // of the browser, as host:port
}

// Answer is an answer of the API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// fault is one entry of an error answer, in Shape A or in Shape B (api/docs/guides/errors.md).
type fault struct {
	Code    string // without its common prefix; "" in Shape B
	Message string
	Target  string // "" for none
}

// result is a parsed answer of the API.
type result struct {
	Answer
	data    json.RawMessage
	traceID string
	faults  []fault
}

// ok reports whether the call succeeded.
func (r *result) ok() bool { return r.Status < http.StatusBadRequest }

// into decodes the data of a success. For an error answer it returns an *apiError.
func (r *result) into(data any) error {
	if !r.ok() {
		return &apiError{r}
	}
	if err := json.Unmarshal(r.data, data); err != nil {
		return fmt.Errorf("console: answer of the API: %w", err)
	}
	return nil
}

// err returns an *apiError unless the call succeeded.
func (r *result) err() error {
	if r.ok() {
		return nil
	}
	return &apiError{r}
}

// apiError is an error answer of the API.
type apiError struct{ *result }

func (e *apiError) Error() string {
	return fmt.Sprintf("console: the API answered %d: %+v", e.Status, e.faults)
}

// refused returns the error answer of a call that the API has understood and refused, for a page to
// show beside its form. The second result is any other error, such as a 401, a 403 or a 5xx.
func refused(err error) (*apiError, error) {
	var e *apiError
	if !errors.As(err, &e) {
		return nil, err
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, err
	}
	if e.Status >= http.StatusInternalServerError {
		return nil, err
	}
	return e, nil
}

// withinScope drops the error of a call that the client's scopes do not allow, and marks the page
// as partial. It returns any other error.
func (v *visit) withinScope(err error) error {
	var e *apiError
	if !errors.As(err, &e) || e.Status != http.StatusForbidden {
		return err
	}
	v.partial = true
	return nil
}

// madeCall is a call as a page shows it.
type madeCall struct {
	Method, Path string
	Body         string // as it was sent; "" for none
	Status       int
	TraceID      string
	Took         time.Duration
}

// parseAnswer reads an answer. An answer that is not JSON has neither data nor faults.
func parseAnswer(a Answer) *result {
	r := &result{Answer: a}
	var envelope struct {
		Data    json.RawMessage `json:"data"`
		TraceID string          `json:"traceId"`
		Errors  []struct{ Code, DisplayMessage, Message, Target string }
	}
	if strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		_ = json.Unmarshal(a.Body, &envelope) // every JSON answer of the API has this form
	}
	r.data, r.traceID = envelope.Data, envelope.TraceID
	for _, e := range envelope.Errors {
		r.faults = append(r.faults, fault{strings.TrimPrefix(e.Code, docs.CodePrefix),
			e.DisplayMessage + e.Message, e.Target})
	}
	return r
}

// call makes a call with the session's token. A body that is not nil is sent as JSON. headers
// alternate names and values. A 401 returns errSignedOut. Any other answer is a result, also an
// error answer.
func (v *visit) call(method, path string, body any, headers ...string) (*result, error) {
	c := Call{Method: method, Path: path, RemoteAddress: v.r.RemoteAddr, Header: http.Header{
		"Authorization": {"Bearer " + v.session.Token},
	}}
	if strings.HasPrefix(path, "/billing/") {
		c.Header.Set("Svc-Api-Version", docs.APIVersion)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		c.Header.Set(headers[i], headers[i+1])
	}
	if body != nil {
		encoded, err := models.EncodeJSON(body)
		if err != nil {
			return nil, err
		}
		c.Body = encoded
		c.Header.Set("Content-Type", "application/json")
	}
	began := v.console.Now()
	r := parseAnswer(v.console.API(c))
	v.calls = append(v.calls, madeCall{
		Method: method, Path: path, Body: string(c.Body), Status: r.Status, TraceID: r.traceID,
		Took: v.console.Now().Sub(began),
	})
	if r.Status == http.StatusUnauthorized {
		return nil, errSignedOut
	}
	return r, nil
}

// get makes a GET and decodes its data. An error answer is an *apiError.
func (v *visit) get(path string, query url.Values, data any) error {
	if text := query.Encode(); text != "" {
		path += "?" + text
	}
	r, err := v.call(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return r.into(data)
}

// post makes a POST and decodes its data; data may be nil. An error answer is an *apiError.
func (v *visit) post(path string, body, data any) error {
	return v.send(http.MethodPost, path, body, data)
}

// send is like post for any method.
func (v *visit) send(method, path string, body, data any) error {
	r, err := v.call(method, path, body)
	if err != nil {
		return err
	}
	if data == nil {
		return r.err()
	}
	return r.into(data)
}

// pathOf percent-encodes each segment and joins them into a path.
func pathOf(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// page holds the fields that all lists of the API have.
type page struct {
	TotalItems *int64 `json:"totalItems"`
	NextHref   string `json:"nextHref"`
	PrevHref   string `json:"prevHref"`
}

// cursorOf returns the cursor of a pagination link, "" without a link.
func cursorOf(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	return u.Query().Get("cursor")
}

// pageSize is the number of items that a list shows at once.
const pageSize = "25"

// listQuery returns the query of a list call: the cursor alone, or the filters that are not empty.
// filters are the names of parameters of the page's address.
func (v *visit) listQuery(filters ...string) url.Values {
	if cursor := v.query("cursor"); cursor != "" {
		return url.Values{"cursor": {cursor}}
	}
	q := url.Values{"limit": {pageSize}}
	for _, name := range filters {
		if value := v.query(name); value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// literal returns a form's number for JSON: an integer if the text is one, otherwise the text,
// which the API refuses. It returns nil for an empty field.
func literal(text string) any {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	digits := strings.TrimPrefix(text, "-")
	if digits != "" && strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0') {
		return json.RawMessage(text)
	}
	return text
}

// object builds a JSON object from pairs, which alternate names and values. It leaves out values
// that are nil or "".
func object(pairs ...any) map[string]any {
	o := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		if value := pairs[i+1]; value != nil && value != "" {
			o[name] = value
		}
	}
	return o
}

// siteName is the id of a Site with its name.
type siteName struct {
	ID   models.SiteID
	Name string
}
