package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"partnerbilling/api/client"
)

// hostileRequest is an HTTP request, possibly an invalid one, that is sent as plain bytes.
type hostileRequest struct {
	method, target string
	headers        []string // lines without line ends
	body           string
	html           bool // the client accepts HTML
}

// text returns the bytes of the request.
func (r *hostileRequest) text() string {
	head := slices.Concat([]string{r.method + " " + r.target + " HTTP/1.1"}, r.headers, []string{"", ""})
	return strings.Join(head, "\r\n") + r.body
}

// removeHeader removes all headers with the name.
func (r *hostileRequest) removeHeader(name string) {
	r.headers = slices.DeleteFunc(r.headers, func(h string) bool { return strings.HasPrefix(h, name+":") })
}

// setHeader replaces all headers with the name by one.
func (r *hostileRequest) setHeader(name, value string) {
	r.removeHeader(name)
	r.headers = append(r.headers, name+": "+value)
}

// requestMaker makes distinct hostile requests from the operations of the API's description. It is
// for one goroutine.
type requestMaker struct {
	random     *rand.Rand
	operations []operation
	authorized string // value of a partner's Authorization header
	site       string
	made       map[string]struct{} // texts of all requests so far
}

// operation is an operation of the API's description, such as GET of a path.
type operation struct{ method, path string }

// newRequestMaker returns a maker of requests from the partner p, for the operations of the running
// API. The same seed, operations, Site and token make the same requests.
func (h *hostile) newRequestMaker(p *batchClient, seed uint64) (*requestMaker, error) {
	m := &requestMaker{
		random:     rand.New(rand.NewPCG(seed, 0)), // repeatable
		authorized: bearer(p.token), made: map[string]struct{}{},
	}
	_, rest, _ := strings.Cut(p.url, "/sites/")
	m.site, _, _ = strings.Cut(rest, "/")
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	err := newLoadClient(1).send(&call{url: "http://" + h.address + "/openapi.json"},
		func(_ int, body []byte) error { return json.Unmarshal(body, &description) })
	if err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(description.Paths)) {
		for _, method := range []string{"get", "put", "post", "delete"} {
			// A test operation makes the service call other servers.
			if _, ok := description.Paths[path][method]; ok && !strings.HasSuffix(path, "/test") {
				m.operations = append(m.operations, operation{strings.ToUpper(method), path})
			}
		}
	}
	if len(m.operations) == 0 {
		return nil, fmt.Errorf("the description of %s has no operation", h.address)
	}
	return m, nil
}

// next returns a request that has not been made before.
func (m *requestMaker) next() hostileRequest {
	for {
		r := m.mutated()
		text := r.text()
		if _, ok := m.made[text]; !ok {
			m.made[text] = struct{}{}
			return r
		}
	}
}

// mutated returns a valid request, changed by one to four random faults.
func (m *requestMaker) mutated() hostileRequest {
	r := m.valid()
	faults := []func(*hostileRequest){m.breakPath, m.breakQuery, m.breakHeader, m.breakBody, m.breakMethod}
	for range 1 + m.random.IntN(4) {
		pick(m.random, faults)(&r)
	}
	if r.body != "" && !slices.ContainsFunc(r.headers, isFraming) {
		r.headers = append(r.headers, fmt.Sprint("Content-Length: ", len(r.body)))
	}
	return r
}

// isFraming reports whether a header says how long the body is.
func isFraming(header string) bool {
	name, _, _ := strings.Cut(strings.ToLower(header), ":")
	return name == "content-length" || name == "transfer-encoding"
}

// pick returns a random element.
func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// validBodies maps the end of an operation's path to a valid body. Other operations have the body
// {}.
var validBodies = map[string]string{
	"/batches":     `{"batchReference":"b","rows":[{"customerReference":"c","rowReference":"r","amount":1}]}`,
	"/validation":  `{"batchReference":"b","rows":[{"customerReference":"c","rowReference":"r","amount":1}]}`,
	"/retry":       `{"batchReference":"c"}`,
	"/invitations": `{"customerReference":"c","expiresAt":1999999999999}`,
	"/payment-intent": `{"amount":1,"orderId":"o",` +
		`"lineItems":[{"itemId":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":1}]}`,
	"/endpoints/default":  `{"url":"https://partner.example/","events":["transactionStatus"]}`,
	"/endpoints/{siteId}": `{"url":"https://partner.example/"}`,
	"/redelivery":         `{"status":"failed"}`,
	"/token":              `grant_type=client_credentials`,
	"/completion":         `{"customerId":"c","agreementId":"a"}`,
	"/transactions":       `{"customerId":"c","agreementId":"a"}`,
	"/signup":             `{"behaviour":"pays"}`,
}

// validParams replaces path parameters, other than {siteId}, by valid values.
var validParams = strings.NewReplacer(
	"{customerReference}", "c", "{batchReference}", "b",
	"{paymentIntentId}", "pi_01a21f3c-0d4f-74df-bb40-7ebbe5759b72",
	"{idempotencyKey}", "evt_01a21f3c-0d4f-74df-bb40-7ebbe5759b72",
	"{traceId}", strings.Repeat("a", 32), "{code}", strings.Repeat("A", 16), "{token}", "t", "{linkId}", "l",
	"{guide}", "webhooks", "{asset}", "a.css")

// valid returns a valid request to a random operation.
func (m *requestMaker) valid() hostileRequest {
	o := pick(m.random, m.operations)
	r := hostileRequest{
		method: o.method, target: validParams.Replace(strings.ReplaceAll(o.path, "{siteId}", m.site)),
		headers: []string{"Host: x", "Connection: close", "Authorization: " + m.authorized,
			"Svc-Api-Version: " + client.Version},
	}
	if o.method == http.MethodPost || o.method == http.MethodPut {
		r.headers = append(r.headers, "Content-Type: application/json")
		r.body = "{}"
		for end, body := range validBodies {
			if strings.HasSuffix(o.path, end) {
				r.body = body
			}
		}
	}
	return r
}

// hostileTexts are values that parsers often get wrong.
var hostileTexts = []string{
	"", " ", ".", "..", "../..", "%00", "%2e%2e%2f", "%2F", "%25", "%", "%zz", "%ff", "%C0%AF", "%ED%A0%80",
	"%E2%80%AE",
	"a%0d%0aX-Injected:1", "'", "' OR 1=1--", "\"", "<script>alert(1)</script>", "${jndi:ldap://x}", "{{7*7}}", "\\",
	"-1", "0", "1e999", "9223372036854775808", "NaN", "null", "true", "[]", "{}", "*", "+", "a+b", "\u00e9",
	"\U0001F9FE",
	strings.Repeat("a", 129), strings.Repeat("a", 4_000), strings.Repeat("%41", 500),
}

// text returns a hostile text, one time in three with a random number at its end.
func (m *requestMaker) text() string {
	if m.random.IntN(3) > 0 {
		return pick(m.random, hostileTexts)
	}
	return fmt.Sprint(pick(m.random, hostileTexts), m.random.Uint32())
}

// breakPath changes a random segment of the request's path.
func (m *requestMaker) breakPath(r *hostileRequest) {
	path, query, hasQuery := strings.Cut(r.target, "?")
	segments := strings.Split(path, "/")
	at := 1 + m.random.IntN(max(1, len(segments)-1))
	at = min(at, len(segments)-1)
	text := strings.ReplaceAll(m.text(), " ", "%20")
	switch m.random.IntN(8) {
	case 0:
		segments[at] = text
	case 1:
		segments[at] += text
	case 2:
		segments = slices.Insert(segments, at, text)
	case 3:
		segments[at] = strings.ToUpper(segments[at])
	case 4:
		segments = append(segments, "")
	case 5:
		segments = slices.Delete(segments, at, at+1)
	case 6:
		segments = slices.Insert(segments, at, "")
	default:
		segments[at] = fmt.Sprintf("%%%02x", m.random.IntN(256)) + segments[at]
	}
	if path = strings.Join(segments, "/"); !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if hasQuery {
		path += "?" + query
	}
	r.target = path
}

// breakQuery adds a query parameter with a hostile value, sometimes twice.
func (m *requestMaker) breakQuery(r *hostileRequest) {
	separator := "?"
	if strings.Contains(r.target, "?") {
		separator = "&"
	}
	name := pick(m.random, []string{"limit", "state", "cursor", "invitedFrom", "submittedTo", "status", "siteId",
		"from", "orderId", "x", "__proto__", "limit[]", "%ff", ""})
	value := strings.ReplaceAll(m.text(), " ", "+")
	r.target += separator + name + "=" + value
	if m.random.IntN(4) == 0 {
		r.target += "&" + name + "=" + value
	}
}

// breakHeader adds, changes or removes a header.
func (m *requestMaker) breakHeader(r *hostileRequest) {
	text := strings.NewReplacer("\r", "", "\n", "").Replace(m.text())
	switch m.random.IntN(10) {
	case 0:
		r.setHeader("Authorization", text)
	case 1:
		r.setHeader("Authorization", bearer(text))
	case 2:
		r.removeHeader("Authorization")
		r.headers = append(r.headers, fmt.Sprint("X-Nothing: ", m.random.Uint32()))
	case 3:
		r.headers = append(r.headers, "Authorization: "+m.authorized)
	case 4:
		r.setHeader("Svc-Api-Version", text)
	case 5:
		r.headers = append(r.headers, "Content-Type: "+pick(m.random, []string{"text/plain", "multipart/form-data",
			"application/json; charset=latin1", "application/x-www-form-urlencoded", ";", text}))
	case 6:
		r.headers = append(r.headers, "Content-Encoding: "+
			pick(m.random, []string{"gzip", "br", "identity, gzip", text}))
	case 7:
		r.headers = append(r.headers, pick(m.random, []string{"Prefer: wait=" + fmt.Sprint(m.random.IntN(2)),
			"Prefer: " + text, "If-None-Match: " + text, "Idempotency-Key: " + text, "Last-Event-ID: " + text,
			"traceparent: " + text, "X-Forwarded-For: " + text, "Accept: " + text, "Range: bytes=" + text,
			"Expect: 100-continue", "Upgrade: websocket", "Cookie: " + text}))
	case 8:
		r.headers = append(r.headers, pick(m.random, []string{"Content-Length: 5", "Content-Length: -1",
			"Content-Length: x", "Content-Length: 99999999999999999999",
			"Transfer-Encoding: chunked", "Transfer-Encoding: gzip",
			"Transfer-Encoding: chunked, chunked"}))
	default:
		r.headers = append(r.headers, "Accept: text/html")
		r.html = true
	}
}

// breakBody damages or replaces the body.
func (m *requestMaker) breakBody(r *hostileRequest) {
	if r.body == "" {
		r.body = "{}"
	}
	quoted, _ := json.Marshal(m.text()) //nolint:errchkjson // a string
	switch m.random.IntN(10) {
	case 0:
		r.body = r.body[:m.random.IntN(len(r.body))]
	case 1:
		at := m.random.IntN(len(r.body))
		r.body = r.body[:at] + string(rune(m.random.IntN(256))) + r.body[at:]
	case 2:
		b := []byte(r.body)
		b[m.random.IntN(len(b))] = byte(m.random.IntN(256))
		r.body = string(b)
	case 3:
		r.body = strings.Replace(r.body, ":", ":"+pick(m.random, []string{"null", "-0", "1.0", "1e2", "[]", "{}",
			"\"\\u0000\"", "\"\\ud800\"", "9007199254740993", string(quoted)})+",\"x\":", 1)
	case 4:
		r.body = strings.Repeat(`{"a":`, m.random.IntN(100)) + r.body
	case 5:
		r.body = "\ufeff" + r.body
	case 6:
		r.body += r.body
	case 7:
		r.body = `{"x":[` + strings.Repeat("1,", m.random.IntN(40_000)) + "1]}"
	case 8:
		r.body = string(quoted)
	default:
		r.body = strings.Replace(r.body, "}", fmt.Sprintf(",%s:%s}", quoted, quoted), 1)
	}
}

// breakMethod replaces the method by a random one, which may be invalid.
func (m *requestMaker) breakMethod(r *hostileRequest) {
	r.method = pick(m.random, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
		"get", "BREW", "G\x01T", strings.Repeat("M", 1+m.random.IntN(64))})
}
