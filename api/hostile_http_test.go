package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
)

func TestHostileHTTP(t *testing.T) {
	g := newTestServer(t, func(c *api.Config) { c.ReadTimeout = 300 * time.Millisecond })
	get := "GET " + site("/batches/b") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"
	post := "POST " + site("/batches") +
		" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		text, fault string
		status      int
	}{
		"not HTTP": {"nonsense\r\n\r\n", "requests:malformed-request", 400},
		"TLS": {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
			"requests:malformed-request", 400},
		"headers too large": {get + "X: " + strings.Repeat("x", 20000) + "\r\n\r\n",
			"requests:headers-too-large", 431},
		"path too long": {"GET /" + strings.Repeat("x", 20000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
			"requests:headers-too-large", 431},
		"many headers": {get + strings.Repeat("X: y\r\n", 5000) + "\r\n", "requests:headers-too-large", 431},
		"two lengths": {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
			"requests:malformed-request", 400},
		"bad length": {post + "Content-Length: -2\r\n\r\n{}", "requests:malformed-request", 400},
		"huge length": {post + "Content-Length: 99999999999999999999\r\n\r\n{}",
			"requests:malformed-request", 400},
		"unknown coding": {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
			"requests:malformed-request", 400},
		"bad chunk": {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
			"requests:malformed-request", 400},
		"space before colon":    {get + "X : y\r\n\r\n", "requests:malformed-request", 400},
		"tab before colon":      {get + "X\t: y\r\n\r\n", "requests:malformed-request", 400},
		"space in a name":       {get + "X Y: z\r\n\r\n", "requests:malformed-request", 400},
		"tab in a name":         {get + "X\tY: z\r\n\r\n", "requests:malformed-request", 400},
		"space in a known name": {post + "Content Length: 2\r\n\r\n", "requests:malformed-request", 400},
		"space before a name":   {"GET / HTTP/1.1\r\n Host: x\r\n\r\n", "requests:malformed-request", 400},
		"length with a space":   {post + "Content-Length : 2\r\n\r\n{}", "requests:malformed-request", 400},
		"chunked with a space": {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
			"requests:malformed-request", 400},
		"another version":  {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "requests:malformed-request", 400},
		"another minor":    {"GET / HTTP/1.x\r\nHost: x\r\n\r\n", "requests:malformed-request", 400},
		"another protocol": {"GET / RTSP/1.0\r\nHost: x\r\n\r\n", "requests:malformed-request", 400},
		"two hosts":        {get + "Host: y\r\n\r\n", "requests:malformed-request", 400},
		"slow headers":     {get, "requests:request-timeout", 408},
		"slow body": {post + "Content-Length: 9000\r\n\r\n{" + strings.Repeat(" ", 8500),
			"requests:request-timeout", 408},
		"slow chunked body": {post + "Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n",
			"requests:request-timeout", 408},
		"body that never arrives": {post + "Content-Length: 50\r\n\r\n", "requests:request-timeout", 408},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := "/unreadable" // outside the description, like every unreadable request
			answers := g.For(t).RawUnchecked(c.text, 1)
			if len(answers) != 1 {
				t.Fatalf("no answer at %s", path)
			}
			answers[0].Refused(c.status, c.fault)
			if got := answers[0].Header.Get("Svc-Api-Version"); strings.Contains(c.text[:min(20, len(c.text))],
				" /billing/") != (got != "") {
				t.Errorf("version %q", got)
			}
			if !answers[0].Close {
				t.Error("the connection stays open")
			}
		})
	}
}

// An unreadable request is refused in the shape of its area if the request line is readable.
func TestHostileHTTPInCheckout(t *testing.T) {
	g := newTestServer(t, func(c *api.Config) { c.ReadTimeout = 300 * time.Millisecond })
	post := "POST /checkout/x/payment-intent?a=b HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		text, message string
		status        int
	}{
		"headers too large": {post + "X: " + strings.Repeat("x", 20000) + "\r\n\r\n",
			"The request line and the headers together are too large.", 431},
		"path too long": {"GET /checkout/" + strings.Repeat("x", 20000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
			"The request line and the headers together are too large.", 431},
		"two lengths": {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
			"The request is not valid HTTP.", 400},
		"bad length":   {post + "Content-Length: -2\r\n\r\n{}", "The request is not valid HTTP.", 400},
		"no host":      {"GET /checkout HTTP/1.1\r\n\r\n", "The request is not valid HTTP.", 400},
		"slow headers": {post, "The request took too long to arrive.", 408},
		"slow body after a 100": {post + "Expect: 100-continue\r\nContent-Length: 50\r\n\r\n",
			"The request took too long to arrive.", 408},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 1 + strings.Count(c.text, "100-continue")
			answers := g.For(t).RawUnchecked(c.text, n) // checks the shape
			if len(answers) != n || answers[n-1].Status != c.status ||
				!strings.Contains(string(answers[n-1].Body), c.message) {
				t.Fatalf("%+v", answers)
			}
		})
	}
}

// The shape follows the refused request, not an earlier one on the connection.
func TestHostileHTTPAfterOthers(t *testing.T) {
	g := newTestServer(t, nil)
	for _, paths := range [][]string{{"/checkout/x", "/billing/x"}, {"/billing/x", "/checkout/x"}} {
		connection, err := net.Dial("tcp", strings.TrimPrefix(g.BaseURL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		reader := bufio.NewReader(connection)
		for i, path := range paths {
			if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path,
				-i); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || strings.Contains(string(body), `"timestamp"`) != (path == "/checkout/x") {
				t.Fatalf("%s: %v, %s", path, err, body)
			}
		}
	}
}

func TestKeepAliveAfterErrors(t *testing.T) {
	g := newTestServer(t, nil)
	ok := "GET " + site("/batches/b") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n\r\n"
	withBody := func(method, path, headers string, size int) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path, headers, size,
			strings.Repeat("GET /smuggled HTTP/1.1\r\n", size/24+1)[:size])
	}
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"unknown path":   {withBody("POST", "/nothing", "", 100), 404},
		"wrong method":   {withBody("DELETE", site("/batches"), "", 5000), 405},
		"unknown method": {withBody("BREW", site("/batches"), "", 5000), 405},
		"no token":       {withBody("POST", site("/batches"), "", 60000), 401},
		"media type": {withBody("POST", site("/batches"),
			"Authorization: Bearer full\r\nContent-Type: text/plain\r\n", 60000), 415},
		"malformed": {withBody("POST", site("/batches"),
			"Authorization: Bearer full\r\nContent-Type: application/json\r\n", 3000), 400},
		"GET with a body":  {withBody("GET", site("/batches/b"), "Authorization: Bearer full\r\n", 9000), 200},
		"HEAD with a body": {withBody("GET", "/nothing", "", 9000), 404},
		"chunked and unread": {
			"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n18\r\nGET /smuggled HTTP/1.1\r\n\r\n0\r\n\r\n", 404},
		"expecting a 100": {withBody("POST", site("/batches"), "Expect: 100-continue\r\n", 300), 100},
		"panic":           {"GET /fail/panic HTTP/1.1\r\nHost: x\r\n\r\n", 500},
		"absolute form": {"GET http://elsewhere" + site("/batches/b") +
			" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n\r\n", 200},
		"asterisk":            {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		"authority form":      {"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		"bare line feeds":     {"GET /nothing HTTP/1.1\nHost: x\n\n", 404},
		"fragment in a query": {"GET /nothing?a#b HTTP/1.1\r\nHost: x\r\n\r\n", 404},
	} {
		t.Run(name, func(t *testing.T) {
			want := []int{c.status, 200, c.status, 200}
			if c.status == 100 {
				want = []int{100, 401, 200, 100, 401, 200}
			}
			var got []int
			for _, a := range g.For(t).RawUnchecked(c.request+ok+c.request+ok, len(want)) {
				got = append(got, a.Status)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	huge := withBody("POST", "/nothing", "", 2<<20)
	if answers := g.RawUnchecked(huge+ok, 2); len(answers) != 1 || answers[0].Status != 404 || !answers[0].Close {
		t.Errorf("%d answers after a huge body that nobody reads", len(answers))
	}
}

func TestHTTP10(t *testing.T) {
	g := newTestServer(t, nil)
	answers := g.RawUnchecked("GET /fail/not HTTP/1.0\r\n\r\n", 2)
	if len(answers) != 1 || answers[0].Status != 200 {
		t.Errorf("%d answers", len(answers))
	}
}
