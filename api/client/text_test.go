package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/api/client"
)

// newAPI returns a client of a server that answers every call with the body, and counts the calls.
func newAPI(t *testing.T, body string) (*client.Client, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth2/token" {
			_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
			return
		}
		calls.Add(1)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return client.New(client.Config{BaseURL: server.URL, ClientID: "id", ClientSecret: "secret"}), &calls
}

// No call sends text that is not UTF-8: encoding/json would turn it into another reference.
func TestInvalidTextIsNotSent(t *testing.T) {
	t.Parallel()
	const bad = "ada\xff"
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"an invitation": func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateInvitation(ctx, "site", client.NewInvitation{CustomerReference: bad}, "")
			return err
		},
		"an idempotency key": func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateInvitation(ctx, "site", client.NewInvitation{CustomerReference: "ada"}, bad)
			return err
		},
		"a row": func(ctx context.Context, c *client.Client) error {
			_, err := c.SubmitBatch(ctx, "site", client.Batch{BatchReference: "b",
				Rows: []client.Row{{CustomerReference: "ada"}, {CustomerReference: bad}}})
			if !strings.Contains(err.Error(), ".Rows[1].CustomerReference") {
				t.Errorf("the error does not name the field: %v", err)
			}
			return err
		},
		"a retry": func(ctx context.Context, c *client.Client) error {
			_, err := c.RetryBatch(ctx, "site", "b", bad)
			return err
		},
		"a modifier": func(ctx context.Context, c *client.Client) error {
			_, err := c.CreatePaymentIntent(ctx, "site", client.NewPaymentIntent{Amount: 1,
				LineItems: []client.LineItem{{ItemID: "i", AddOns: &client.AddOns{Modifiers: []string{"", bad}}}}}, "")
			return err
		},
		"a Site in a path": func(ctx context.Context, c *client.Client) error {
			_, err := c.Customer(ctx, bad, "ada")
			return err
		},
		"a reference in a path": func(ctx context.Context, c *client.Client) error {
			_, err := c.Batch(ctx, "site", bad)
			return err
		},
		"a filter": func(ctx context.Context, c *client.Client) error {
			_, err := c.CountCustomers(ctx, "site", client.CustomerFilter{State: bad})
			return err
		},
		"a trace": func(ctx context.Context, c *client.Client) error {
			_, err := c.Trace(ctx, bad)
			return err
		},
		"an endpoint": func(ctx context.Context, c *client.Client) error {
			_, err := c.PutWebhookEndpoint(ctx, "default", "https://example.com/"+bad)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, calls := newAPI(t, `{"data":{},"traceId":"0"}`)
			if err := call(t.Context(), c); !errors.Is(err, client.ErrNotUTF8) || calls.Load() != 0 {
				t.Errorf("%v, %d calls", err, calls.Load())
			}
		})
	}
}

// U+FFFD is a character like any other.
func TestReplacementCharacterIsSent(t *testing.T) {
	t.Parallel()
	c, calls := newAPI(t, `{"data":{},"traceId":"0"}`)
	_, err := c.CreateInvitation(t.Context(), "site", client.NewInvitation{CustomerReference: "\ufffd"}, "")
	if err != nil || calls.Load() != 1 {
		t.Errorf("%v, %d calls", err, calls.Load())
	}
}

// A response that is not UTF-8 is refused, not repaired.
func TestInvalidResponseIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := newAPI(t, `{"data":{"customerReference":"`+"ada\xff"+`"},"traceId":"0"}`)
	if got, err := c.Customer(t.Context(), "site", "ada"); !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("%+v, %v", got, err)
	}
	body := []byte(`{"data":{"orderId":"` + "o\xff" + `"},"traceId":"0"}`)
	header := client.SignWebhook("evt", time.Now(), body, "s")
	if got, err := client.ParseEvent(header, body, "s"); !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("%+v, %v", got, err)
	}
}

// checkText agrees with encoding/json: what it accepts, a JSON text keeps.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "ada", "\xff", "\ufffd", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80",
		"é\xe9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var kept string
		if err := json.Unmarshal(encoded, &kept); err != nil {
			t.Fatal(err)
		}
		err = client.CheckText(map[string][]string{"a": {"", text}})
		if refused := errors.Is(err, client.ErrNotUTF8); refused == (kept == text) {
			t.Errorf("%q: %v, kept as %q", text, err, kept)
		}
	})
}
