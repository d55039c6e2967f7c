package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
)

// requestLog is a sandbox whose log has a list of two requests, and then one request for each
// connection of a stream.
type requestLog struct {
	requests int // in all

	mu    sync.Mutex
	asked []string      // query and Last-Event-ID
	idle  chan struct{} // closed when a connection finds no further request
}

// logged returns a request of the log.
func logged(n int) string {
	code := ""
	if n%2 == 0 {
		code = `"errorCode":"urn:svc:platform:billing:error:requests:not-found",`
	}
	return fmt.Sprintf(`{"traceId":"t%d","at":1795818572681,"method":"GET","path":"/x\u009b%d","route":"/x",`+
		`"status":%d,"durationMs":%d,%s"clientId":"i"}`, n, n, 100+n*100, n, code)
}

// ServeHTTP implements http.Handler.
func (l *requestLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := r.Header.Get("Last-Event-ID")
	l.asked = append(l.asked, r.URL.RawQuery+" "+last)
	if r.Header.Get("Accept") != "text/event-stream" {
		items := logged(1)
		if strings.HasPrefix(r.URL.RawQuery, "limit=10") {
			items = logged(2) + "," + logged(1)
		}
		answer(fmt.Sprintf(`{"items":[%s],"position":"p2"}`, items))(w, r)
		return
	}
	var n int
	_, _ = fmt.Sscanf(last, "p%d", &n)
	_, _ = fmt.Fprintf(w, ": listening\nid: %s\n\n", last)
	if n++; n <= l.requests {
		_, _ = fmt.Fprintf(w, "id: p%d\nevent: request\ndata: %s\n\n", n, logged(n))
		return
	}
	close(l.idle)
	w.(http.Flusher).Flush()
	l.mu.Unlock()
	<-r.Context().Done()
	l.mu.Lock()
}

// tailUntilIdle runs logs tail until the log has no further request.
func tailUntilIdle(t *testing.T, log *requestLog, args ...string) (out, errOut string) {
	t.Helper()
	log.idle = make(chan struct{})
	server := newAPI(t, map[string]http.HandlerFunc{"GET /sandbox/requests": log.ServeHTTP})
	return runUntilIdle(t, server.URL, log.idle, []string{"logs", "tail"}, args)
}

// tail prints earlier requests, oldest first, and follows over broken connections without a gap.
func TestTail(t *testing.T) {
	t.Parallel()
	log := &requestLog{requests: 4}
	out, errOut := tailUntilIdle(t, log, "--status", "4xx", "--path", "/x")
	want := "2026-11-27T22:29:32Z  200  GET     /x\ufffd1  1 ms  t1\n" +
		"2026-11-27T22:29:32Z  300  GET     /x\ufffd2  2 ms  t2  requests:not-found\n" +
		"2026-11-27T22:29:32Z  400  GET     /x\ufffd3  3 ms  t3\n" +
		"2026-11-27T22:29:32Z  500  GET     /x\ufffd4  4 ms  t4  requests:not-found\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
	if strings.Count(errOut, "following the requests at http://") < 2 ||
		strings.Count(errOut, "the service ended the stream; connecting again") != 2 {
		t.Errorf("said %s", errOut)
	}
	const query = "path=%2Fx&status=4xx"
	asked := []string{"limit=10&" + query + " ", query + " p2", query + " p3", query + " p4"}
	if diff := cmp.Diff(asked, log.asked); diff != "" {
		t.Errorf("(-want +asked):\n%s", diff)
	}
}

func TestTailForms(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--limit 0 -o jsonl":      "",
		"--limit 1 -o jsonl":      strings.Replace(logged(1), `\u009b`, "\u009b", 1) + "\n",
		"--limit 0 --method POST": "",
		"--limit 1 -o csv": "at,status,method,path,durationMs,traceId,errorCode,route,clientId,console\r\n" +
			"1795818572681,200,GET,/x\u009b1,1,t1,,/x,i,\r\n",
	} {
		out, _ := tailUntilIdle(t, &requestLog{}, strings.Fields(args)...)
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s (-want +printed):\n%s", args, diff)
		}
	}
	out, _ := tailUntilIdle(t, &requestLog{requests: 3}, "-o", "json", "--limit", "1")
	if got := strings.Count(out, "{\n  \"traceId\""); got != 2 || strings.Contains(out, "[") {
		t.Errorf("%d objects: %s", got, out)
	}
}

// A colour says what a status means, on a terminal alone.
func TestTailColours(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		200: "\x1b[32m200\x1b[0m", 304: "\x1b[32m304\x1b[0m", 404: "\x1b[33m404\x1b[0m", 503: "\x1b[31m503\x1b[0m",
	} {
		r := client.LoggedRequest{Status: status, Method: "GET", Path: "/\x1b[31m"}
		if got := requestLine(&r, true); !strings.Contains(got, "  "+want+"  GET     /\ufffd[31m  ") {
			t.Errorf("%q", got)
		}
		if got := requestLine(&r, false); strings.Contains(got, "\x1b") {
			t.Errorf("%q", got)
		}
	}
}

// A faulty flag and a refusal have the exit codes of other commands.
func TestTailFails(t *testing.T) {
	t.Parallel()
	production := newAPI(t, map[string]http.HandlerFunc{
		"GET /sandbox/requests": refuse(http.StatusNotFound, "requests:not-found"),
	})
	for args, want := range map[string]int{
		"": exitNotFound, "--limit 1001": exitUsage, "--limit -1": exitUsage, "--method get": exitUsage, "x": exitUsage,
		"-o xml": exitUsage,
	} {
		r := svcctl(t.Context(), production.URL, append([]string{"logs", "tail"}, strings.Fields(args)...)...)
		if r.code != want || r.out != "" || r.errOut == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
