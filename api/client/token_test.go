package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/client"
)

// A token's expiry is a time of the wall clock: the monotonic clock stands still while a computer
// sleeps.
func TestTokensExpireByTheWallClock(t *testing.T) {
	t.Parallel()
	c, _ := service(t, client.Config{}, with(200, found))
	before := time.Now()
	if err := c.Authenticate(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := c.RenewAt()
	if strings.Contains(at.String(), "m=") || at.Before(before.Add(58*time.Minute)) ||
		at.After(time.Now().Add(time.Hour)) {
		t.Errorf("renews at %v", at)
	}
}

// Concurrent calls share one request for a token. Each returns when its own context ends, and none
// ends the request for the others.
func TestTokenRequestsAreShared(t *testing.T) {
	asked, release := make(chan struct{}, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
	}))
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, ClientID: "id", ClientSecret: "secret"})
	authenticate := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() { done <- c.Authenticate(ctx) }()
		return done
	}
	leaving, leave := context.WithCancel(t.Context())
	first := authenticate(leaving)
	<-asked
	waiting := authenticate(t.Context())
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := <-authenticate(given); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up while it waited: %v", err)
	}
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that gave up first: %v", err)
	}
	close(release)
	if err := <-waiting; err != nil || len(asked) != 0 {
		t.Errorf("the caller that waited: %v, after %d further requests", err, len(asked))
	}
}
