package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"partnerbilling/api/client"
)

// A 429 that asks for a longer wait than the client's is an answer: a quota may not free itself.
func TestALongRetryAfterIsNotAwaited(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth2/token" {
			_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
			return
		}
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		_,
			_ = w.Write(
			[]byte(`{"errors":[{"code":"urn:svc:platform:billing:error:requests:quota-exceeded"}],"traceId":"t"}`))
	}))
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, ClientID: "id", ClientSecret: "secret"})
	_, err := c.Customer(t.Context(), "site", "reference")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}
