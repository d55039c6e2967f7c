package apitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/api"
)

// clientTimeout bounds a request whose answer is lost, and the wait of AwaitNoListener. It exceeds
// the longest time for which the server holds an answer.
const clientTimeout = 90 * time.Second

// AwaitNoListener waits until the server at baseURL ("http://host:port") accepts no more
// connections, as when it stops. It fails the test if that takes longer than clientTimeout.
func AwaitNoListener(t testing.TB, baseURL string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		c, err := net.Dial("tcp", strings.TrimPrefix(baseURL, "http://"))
		if err != nil {
			return
		}
		_ = c.Close()
		select {
		case <-ctx.Done():
			t.Fatalf("%s still accepts connections", baseURL)
		case <-poll.C:
		}
	}
}

// Client sends requests to a server and fails the test when an answer violates the API description.
// It follows no redirects.
type Client struct {
	BaseURL string // without a trailing slash

	t           testing.TB
	description *Description
	http        *http.Client
	header      http.Header
}

// New starts the server on a free port for the duration of the test. It returns a client that
// checks answers against the published description.
func New(t testing.TB, server *api.Server) *Client {
	t.Helper()
	description, err := Served()
	if err != nil {
		t.Fatal(err)
	}
	return NewWith(t, server, description)
}

// NewWith is like New, but checks answers against another description.
func NewWith(t testing.TB, server *api.Server, description *Description) *Client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shut down the API: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve the API: %v", err)
		}
	})
	c := Connect(t, "http://"+ln.Addr().String(), description)
	c.http.Transport = transport
	return c
}

// Connect returns a client for a server that already runs at baseURL ("http://host:port").
func Connect(t testing.TB, baseURL string, description *Description) *Client {
	return &Client{
		BaseURL: baseURL, t: t, description: description, header: http.Header{},
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       clientTimeout,
		},
	}
}

// With returns a copy of the client that also sends the header.
func (c *Client) With(name, value string) *Client {
	d := *c
	d.header = c.header.Clone()
	d.header.Set(name, value)
	return &d
}

// WithToken returns a copy of the client that sends the access token.
func (c *Client) WithToken(token string) *Client { return c.With("Authorization", "Bearer "+token) }

// For returns a copy of the client that reports to another test, such as a subtest.
func (c *Client) For(t testing.TB) *Client {
	d := *c
	d.t = t
	return &d
}

// Get sends a GET. The path is sent unchanged, so it must be percent-encoded.
func (c *Client) Get(path string) *Answer {
	c.t.Helper()
	return c.Send(http.MethodGet, path, nil)
}

// Post sends a POST. A string, bytes or an io.Reader is sent unchanged as the body. Any other body
// is sent as JSON. nil sends no body.
func (c *Client) Post(path string, body any) *Answer {
	c.t.Helper()
	return c.Send(http.MethodPost, path, body)
}

// Send sends a request; see Get for the path and Post for the body. The Content-Type of a body
// defaults to application/json.
func (c *Client) Send(method, path string, body any) *Answer {
	c.t.Helper()
	answer, err := c.Try(context.Background(), method, path, body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// Try is Send for goroutines other than the test's own. It returns every failure, including an
// answer that violates the description.
func (c *Client) Try(ctx context.Context, method, path string, body any) (*Answer, error) {
	content, err := encode(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.BaseURL, content)
	if err != nil {
		return nil, err
	}
	rawPath, query, _ := strings.Cut(path, "?")
	request.URL.Opaque, request.URL.RawQuery = rawPath, query // sent unchanged
	maps.Copy(request.Header, c.header)
	if content != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	answer, err := c.answer(response)
	if err != nil {
		return nil, err
	}
	return answer, c.description.Check(method, rawPath, answer)
}

// encode returns the body as Post sends it, nil for no body.
func encode(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.NewReader(body), nil
	case []byte:
		return bytes.NewReader(body), nil
	case io.Reader:
		return body, nil
	}
	encoded, err := json.Marshal(body)
	return bytes.NewReader(encoded), err
}

// answer reads a whole response.
func (c *Client) answer(response *http.Response) (*Answer, error) {
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	return &Answer{Status: response.StatusCode, Header: response.Header, Body: body, Close: response.Close, t: c.t}, nil
}

// Raw sends text unchanged over a new connection and reads n answers, or fewer if the server closes
// the connection. It checks each of them as the answer to method and path.
func (c *Client) Raw(text, method, path string, n int) []*Answer {
	c.t.Helper()
	return c.raw(text, n, func(a *Answer) error { return c.description.Check(method, path, a) })
}

// RawUnchecked is like Raw for requests that the description does not cover: malformed or pipelined
// ones. It checks only security headers and the bodies of errors.
func (c *Client) RawUnchecked(text string, n int) []*Answer {
	c.t.Helper()
	return c.raw(text, n, func(a *Answer) error {
		if a.Status == http.StatusContinue {
			return nil
		}
		if err := checkProtection(rawTarget(text), a); err != nil || a.Status < http.StatusBadRequest {
			return err
		}
		return c.description.checkError(rawTarget(text), a)
	})
}

// rawTarget returns the request target in the first line of text, "" if there is none.
func rawTarget(text string) string {
	line, _, _ := strings.Cut(text, "\r\n")
	_, target, _ := strings.Cut(line, " ")
	target, _, _ = strings.Cut(target, " ")
	return target
}

// rawTimeout bounds how long raw connects, and then how long it sends and reads.
const rawTimeout = 10 * time.Second

// raw sends text over a new connection and reads up to n answers. The test fails unless check
// accepts each of them.
func (c *Client) raw(text string, n int, check func(*Answer) error) []*Answer {
	c.t.Helper()
	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(c.BaseURL, "http://"), rawTimeout)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := connection.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		c.t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(connection, text)
	}()
	defer func() {
		_ = connection.Close()
		<-written
	}()
	reader := bufio.NewReader(connection)
	var answers []*Answer
	for len(answers) < n {
		response, err := http.ReadResponse(reader, nil)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			c.t.Fatalf("after %d answers: %v", len(answers), err)
		}
		answer, err := c.answer(response)
		if err == nil {
			err = check(answer)
		}
		if err != nil {
			c.t.Fatalf("answer %d: %v", len(answers), err)
		}
		answers = append(answers, answer)
	}
	return answers
}
