package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"partnerbilling/api/client"
)

// transport answers requests in memory.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// reply returns a response.
func reply(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// listenSteps runs a listener against a service that answers connection n with step n, and issues
// the tokens token-1, token-2 and so on. It returns the bodies of the deliveries, the token of each
// connection, the pause before it, and the final error.
func listenSteps(t *testing.T, steps ...func(*http.Request) (*http.Response, error)) (
	bodies, tokens []string, pauses []time.Duration, err error,
) {
	t.Helper()
	issued := 0
	last := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	service := transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/oauth2/token" {
			issued++
			return reply(http.StatusOK, fmt.Sprintf(`{"access_token":"token-%d","expires_in":86400}`, issued)), nil
		}
		if len(tokens) == len(steps) {
			cancel()
			return nil, ctx.Err()
		}
		tokens = append(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		pauses = append(pauses, time.Since(last))
		response, err := steps[len(tokens)-1](r)
		last = time.Now()
		return response, err
	})
	c := client.New(client.Config{BaseURL: "http://service", HTTP: &http.Client{Transport: service}})
	for delivery, iterationErr := range c.Listen(ctx) {
		if iterationErr != nil {
			return bodies, tokens, pauses, iterationErr
		}
		bodies = append(bodies, delivery.Body)
	}
	return bodies, tokens, pauses, nil
}

// refused answers a connection with an error.
func refused(status int) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return reply(status, `{"errors":[],"traceId":"t"}`), nil }
}

// accepted answers a connection with a stream that ends after its deliveries.
func accepted(bodies ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		var stream strings.Builder
		stream.WriteString(": listening\nid: p0\n\n")
		for _, body := range bodies {
			fmt.Fprintf(&stream, "id: p1\ndata: {\"headers\":{},\"body\":%q}\n\n", body)
		}
		return reply(http.StatusOK, stream.String()), nil
	}
}

// silent never answers.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A refused token is renewed, at most once after each accepted connection. If the new token is
// refused before a connection is accepted, the stream ends.
func TestListenRenewsRefusedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tokens, _, err := listenSteps(t,
			accepted(), refused(401), accepted(), refused(503), refused(401), accepted(), refused(401), refused(401))
		var last *client.Error
		if !errors.As(err, &last) || last.Status != http.StatusUnauthorized {
			t.Errorf("ended with %v", err)
		}
		want := "token-1 token-1 token-2 token-2 token-2 token-3 token-3 token-4"
		if got := strings.Join(tokens, " "); got != want {
			t.Errorf("the tokens are %s, want %s", got, want)
		}
	})
}

// An accepted connection ends the backoff, even if it brought no delivery.
func TestListenBacksOffWhileItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, pauses, err := listenSteps(t, refused(503), refused(503), refused(503), accepted(), accepted("1"))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		const unit = 100 * time.Millisecond
		if want := []time.Duration{0, unit, 2 * unit, 4 * unit, unit}; !slices.Equal(pauses, want) {
			t.Errorf("the pauses are %v, want %v", pauses, want)
		}
	})
}

// A connection that is never answered, and a stream that falls silent, are given up.
func TestListenGivesUpSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		fallsSilent := func(r *http.Request) (*http.Response, error) {
			out, in := io.Pipe()
			go func() {
				_, _ = io.WriteString(in, ": listening\nid: p0\n\nid: p1\ndata: {\"body\":\"1\"}\n\n")
				<-r.Context().Done()
				_ = in.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: out}, nil
		}
		bodies, tokens, _, _ := listenSteps(t, silent, fallsSilent, accepted("2"))
		if strings.Join(bodies, " ") != "1 2" || len(tokens) != 3 {
			t.Errorf("%d connections, deliveries %v", len(tokens), bodies)
		}
		if took := time.Since(began); took < 2*client.MaxSilence || took > 2*client.MaxSilence+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A caller may take longer for a delivery than a stream may be silent.
func TestListenWaitsForItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/oauth2/token" {
				return reply(http.StatusOK, `{"access_token":"token","expires_in":86400}`), nil
			}
			return accepted("1", "2")(r)
		})
		c := client.New(client.Config{BaseURL: "http://service", HTTP: &http.Client{Transport: service}})
		n := 0
		options := client.ListenOptions{Broken: func(err error) { t.Errorf("broken: %v", err) }}
		for delivery, err := range c.ListenWith(t.Context(), options) {
			if n++; err != nil || delivery.Body != fmt.Sprint(n) {
				t.Fatalf("delivery %d: %+v, %v", n, delivery, err)
			}
			if n == 2 {
				break
			}
			<-time.After(2 * client.MaxSilence) // of the bubble's clock
		}
	})
}
