package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"partnerbilling/api/client"
)

// requestLog is a service whose log has requests of the traces t1 to tn. A connection of a stream
// ends after two of them.
func requestLog(t *testing.T, n int) (*client.Client, *[]string) {
	t.Helper()
	var asked []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","expires_in":3600}`))
	})
	mux.HandleFunc("GET /sandbox/requests", func(w http.ResponseWriter, r *http.Request) {
		last := r.Header.Get("Last-Event-ID")
		asked = append(asked, r.URL.RawQuery+" "+last)
		if r.Header.Get("Accept") != "text/event-stream" {
			_, _ = w.Write([]byte(`{"data":{"items":[{"traceId":"t1","at":5,"method":"GET",` +
				`"path":"/x?a=b","route":"/x",` +
				`"status":404,"durationMs":3,"errorCode":"c","clientId":"i","console":true}],"position":"p1"},"traceId":"t"}`))
			return
		}
		var from int
		if _, err := fmt.Sscanf(last, "p%d", &from); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, ": listening\nid: %s\n\n", last)
		for i := from + 1; i <= min(from+2, n); i++ {
			_, _ = fmt.Fprintf(w, "id: p%d\nevent: request\ndata: {\"traceId\":\"t%d\"}\n\n", i, i)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return client.New(client.Config{BaseURL: server.URL}), &asked
}

// A stream continues after the list, and after the last request of a broken connection.
func TestTailRequests(t *testing.T) {
	t.Parallel()
	c, asked := requestLog(t, 5)
	filter := client.RequestFilter{Limit: 1, Status: "4xx", Method: "GET", Path: "/é&"}
	list, err := c.Requests(t.Context(), filter)
	want := client.LoggedRequest{
		TraceID: "t1", At: 5, Method: "GET", Path: "/x?a=b", Route: "/x", Status: 404, DurationMs: 3, ErrorCode: "c",
		ClientID: "i", Console: true,
	}
	if err != nil || len(list.Items) != 1 || list.Items[0] != want {
		t.Fatalf("%+v, %v", list, err)
	}
	connected := 0
	options := client.TailOptions{LastID: list.Position, Filter: filter, Connected: func(string) { connected++ }}
	var got []string
	for r, err := range c.TailRequests(t.Context(), options) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, r.TraceID+" "+r.ID); r.TraceID == "t5" {
			break
		}
	}
	if want := []string{"t2 p2", "t3 p3", "t4 p4", "t5 p5"}; !slices.Equal(got, want) || connected != 2 {
		t.Errorf("got %v over %d connections", got, connected)
	}
	const query = "limit=1&method=GET&path=%2F%C3%A9%26&status=4xx"
	if want := []string{query + " ", query + " p1", query + " p3"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %q", *asked)
	}
}

// A refused stream ends with the refusal.
func TestTailRequestsIsRefused(t *testing.T) {
	t.Parallel()
	c, asked := requestLog(t, 5)
	for _, err := range c.TailRequests(t.Context(), client.TailOptions{LastID: "x"}) {
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
			t.Errorf("%v", err)
		}
	}
	if len(*asked) != 1 {
		t.Errorf("asked %q", *asked)
	}
}
