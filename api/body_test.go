package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
	"partnerbilling/api/ratelimit"
)

// openBody sends an authenticated request without the end of its body.
func openBody(t *testing.T, g *testServer, head, body string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(g.BaseURL, "http://"))
	check(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"+
		"Content-Type: application/json\r\n%s\r\n\r\n%s", site("/batches"), head, body)
	check(t, err)
	return connection
}

// expectAnswer reads the connection until its end, and checks the status.
func expectAnswer(t *testing.T, connection net.Conn, status int) string {
	t.Helper()
	answer, err := io.ReadAll(connection)
	if want := fmt.Sprintf("HTTP/1.1 %d ", status); err != nil || !strings.HasPrefix(string(answer), want) {
		t.Errorf("%v, %.200q; want %q", err, answer, want)
	}
	return string(answer)
}

// padded returns a valid body of n bytes.
func padded(n int) string {
	const begin, end = `{"batchReference":"b","amount":1`, `}`
	return begin + strings.Repeat(" ", n-len(begin)-len(end)) + end
}

// A body that misses its last byte is refused long before the time-out of the request.
func TestUnfinishedBodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"small": 60_000, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newTestServer(t, func(cfg *api.Config) { cfg.ReadTimeout = time.Minute })
			connection := openBody(t, g, fmt.Sprintf("Content-Length: %d", n), padded(n)[:n-1])
			answer := expectAnswer(t, connection, http.StatusRequestTimeout)
			if !strings.Contains(answer, "requests:request-timeout") {
				t.Error(answer)
			}
		})
	}
}

// With memory for one large body, an unfinished one gives way to the next, and its client learns
// when to come back.
func TestUnfinishedBodyGivesWay(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	g := newTestServer(t, func(cfg *api.Config) { cfg.MemoryLimit, cfg.Metrics = 1, metrics })
	const n = 1 << 20
	connection := openBody(t, g, fmt.Sprintf("Content-Length: %d", n), padded(n)[:n/2])
	awaitGauge(t, metrics, "svc_http_body_bytes", n)
	trickling := make(chan struct{})
	go func() {
		defer close(trickling)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for rest := padded(n)[n/2 : n-1]; len(rest) > 4_000; rest = rest[4_000:] {
			<-ticker.C
			if _, err := io.WriteString(connection, rest[:4_000]); err != nil {
				return
			}
		}
	}()
	for {
		resp, err := g.Try(t.Context(), http.MethodPost, site("/batches"), []byte(padded(n)))
		check(t, err)
		if resp.Status == http.StatusAccepted {
			break
		}
		if resp.Status != http.StatusServiceUnavailable {
			t.Fatalf("the next body: %d", resp.Status)
		}
	}
	answer := expectAnswer(t, connection, http.StatusServiceUnavailable)
	if !strings.Contains(answer, "Retry-After: 1") {
		t.Error(answer)
	}
	<-trickling
	awaitGauge(t, metrics, "svc_http_body_bytes", 0)
}

// A chunked body is counted with its limit until its length is known.
func TestChunkedBodies(t *testing.T) {
	t.Parallel()
	g := newTestServer(t, nil)
	for _, n := range []int{100, 16 << 10, 40_000, 1 << 20} {
		connection := openBody(t, g, "Connection: close\r\nTransfer-Encoding: chunked",
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, padded(n)))
		expectAnswer(t, connection, http.StatusAccepted)
	}
	n := 1<<20 + 1
	connection := openBody(t, g, "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, padded(n)))
	expectAnswer(t, connection, http.StatusRequestEntityTooLarge)
}

// Large bodies that are handled at the same time keep apart, although they share buffers.
func TestLargeBodiesKeepApart(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	var group sync.WaitGroup
	for sender := range 6 {
		group.Go(func() {
			for n := range 6 {
				body, references := largeBody(fmt.Sprint(sender, ".", n, "."), 300*(1+sender%3))
				var got struct {
					Rows []struct{ RowReference, Prediction string }
				}
				b.Post(b.batches("/validation"), body).Expect(200).Data(&got)
				if len(got.Rows) != len(references) {
					t.Errorf("%d rows, want %d", len(got.Rows), len(references))
					return
				}
				for i, row := range got.Rows {
					if row.RowReference != references[i] {
						t.Errorf("row %d is %q, want %q", i, row.RowReference, references[i])
						return
					}
				}
			}
		})
	}
	group.Wait()
}

// largeBody returns a submission of more than 64 KiB, with the references of its rows. They begin
// with the prefix.
func largeBody(prefix string, rows int) (body string, references []string) {
	var b strings.Builder
	b.WriteString(`{"batchReference":"b","rows":[`)
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		references = append(references, prefix+strings.Repeat("x", 120-len(prefix))+fmt.Sprint(i))
		fmt.Fprintf(&b, `{"customerReference":"c%s","rowReference":"%s","amount":1}`, strings.Repeat("x", 100),
			references[i])
	}
	b.WriteString("]}")
	return b.String(), references
}

// Every route that takes a large body, or makes a batch, is limited as batches are.
func TestLargeBodiesAreLimitedAsBatches(t *testing.T) {
	t.Parallel()
	large := 0
	for _, route := range newServer().Routes() {
		const ordinary = 64 << 10
		takesMuch := route.Bounds.Bytes > ordinary || strings.HasSuffix(route.Path, "/batches/{batchReference}/retry")
		if takesMuch {
			large++
		}
		if takesMuch != (route.Rate == ratelimit.Batches) {
			t.Errorf("%s %s takes %d bytes and is in the class %q", route.Method, route.Path, route.Bounds.Bytes,
				route.Rate)
		}
	}
	if large != 3 {
		t.Errorf("%d routes are limited as batches", large)
	}
}
