package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// answersTo sends raw bytes on a connection of their own, and returns every answer.
func answersTo(t *testing.T, address string, raw []byte) (all []*http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(raw) // the server may refuse the rest
	_ = c.(*net.TCPConn).CloseWrite()
	var received bytes.Buffer
	_, _ = io.Copy(&received, c)
	reader := bufio.NewReader(bytes.NewReader(received.Bytes()))
	for {
		if _, err := reader.Peek(1); err != nil {
			return all
		}
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("%q is answered with %q: %v", raw, received.Bytes(), err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatalf("%q is answered with %q: %v", raw, received.Bytes(), err)
		}
		answer.Body = io.NopCloser(bytes.NewReader(body))
		all = append(all, answer)
	}
}

// requestsIn counts the requests that net/http reads from raw bytes, with one that is malformed or
// cut off. If net/http refuses the target of a request, it does not say where the request ends: the
// count is then unbounded.
func requestsIn(raw []byte) (n int) {
	reader := bufio.NewReader(bytes.NewReader(raw))
	for {
		request, err := http.ReadRequest(reader)
		if errors.Is(err, io.EOF) {
			return n
		}
		if refused := new(url.Error); errors.As(err, &refused) {
			return math.MaxInt
		}
		n++
		if err != nil {
			return n
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return n
		}
	}
}

// Whatever bytes arrive, the server answers in its own form, never with 5xx, and never sees more
// requests than net/http does: otherwise one could be smuggled through a proxy.
func FuzzHTTP(f *testing.F) {
	g := newTestServer(f, nil)
	address := strings.TrimPrefix(g.BaseURL, "http://")
	const head = " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"
	post := "POST " + site("/batches") + head + "Content-Type: application/json\r\n"
	const body = `{"batchReference":"b","amount":1}`
	for _, raw := range []string{
		"GET " + site("/batches/b") + head + "\r\n",
		"GET " + site("/customers") + head + "Svc-Api-Version: urn:svc:api:billing:version:v1\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		post + "Content-Length: 33\r\n\r\n" + body + "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		post + "Transfer-Encoding: chunked\r\n\r\n21;a=b\r\n" + body + "\r\n0\r\nX: y\r\n\r\n",
		post + "Content-Length: 33\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
		post + "Expect: 100-continue\r\nContent-Length: 33\r\n\r\n" + body,
		"POST /form" + head + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b",
		"GET /a\r\n b HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 32<<10 || bytes.Contains(raw, []byte("/wait")) || bytes.Contains(raw, []byte("/fail")) {
			return // the test server's routes that wait, and that fail on purpose
		}
		answers := answersTo(t, address, raw)
		for _, a := range answers {
			if a.StatusCode == http.StatusContinue {
				answers = answers[1:]
				continue
			}
			content, _ := io.ReadAll(a.Body)
			var envelope struct{ TraceID string }
			err := json.Unmarshal(content, &envelope)
			isJSON := err == nil && len(envelope.TraceID) == 32
			if a.StatusCode >= 500 || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
				!isJSON && len(content) > 0 && a.Header.Get("Content-Type") != "text/html;charset=UTF-8" {
				t.Errorf("%q: %d %v %q", raw, a.StatusCode, a.Header, content)
			}
		}
		if most := requestsIn(raw); len(answers) > most {
			t.Errorf("%q: %d answers to %d requests", raw, len(answers), most)
		}
	})
}
