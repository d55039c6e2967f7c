package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/client"
)

// The handler answers by what happened to the event, so that the service repeats what failed.
func TestWebhookHandler(t *testing.T) {
	const status = `{"data":{"idempotencyKey":"evt_1","siteId":{"id":"site"},"paymentIntentId":"pi_1",
		"transactionStatus":"Settled","lineItems":[{"itemId":"a","quantity":1,"amountPerUnit":5,"amountSubtotal":5,
		"amountTotal":4,"discounts":[{"amount":1,"reason":"loyal"}]}]},"traceId":"t"}`
	const corrected = `{"type":"rowCorrected","data":{"idempotencyKey":"evt_2","siteId":{"id":"site"},
		"batchReference":"b","row":{"rowReference":"r","correctedOutcome":"succeeded"}},"traceId":"t"}`
	for name, c := range map[string]struct {
		body, secret string
		fails        bool
		want         int
		check        func(client.Event) bool
	}{
		"status": {status, "current", false, 204, func(e client.Event) bool {
			return e.Type == client.EventTransactionStatus && e.Status.LineItems[0].Discounts[0].Amount == 1
		}},
		"next secret": {status, "next", false, 204, func(e client.Event) bool { return e.IdempotencyKey == "evt_1" }},
		"correction": {corrected, "current", false, 204, func(e client.Event) bool {
			return e.BatchReference == "b" && e.Row.CorrectedOutcome == client.OutcomeSucceeded && e.Status == nil
		}},
		"unknown type": {`{"type":"new","data":{"idempotencyKey":"evt_3"}}`, "current", false, 204,
			func(e client.Event) bool { return e.Type == "new" && e.IdempotencyKey == "evt_3" }},
		"not processed": {status, "current", true, 500, func(client.Event) bool { return true }},
		"wrong secret":  {status, "other", false, 401, nil},
		"not JSON":      {"x", "current", false, 400, nil},
		"too large":     {strings.Repeat("x", 1<<20+1), "current", false, 400, nil},
	} {
		var got *client.Event
		handler := client.WebhookHandler(func(_ context.Context, e client.Event) error {
			got = &e
			if c.fails {
				return errors.New("the database is away")
			}
			return nil
		}, "next", "current")
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		maps.Copy(r.Header, client.SignWebhook("evt_1", time.Now(), []byte(c.body), c.secret))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.want || (got != nil) != (c.check != nil) || got != nil && !c.check(*got) {
			t.Errorf("%s: %d %+v", name, w.Code, got)
		}
	}
}

// A broken stream continues after the last delivery: none is left out, none comes twice.
func TestListenContinuesAfterABreak(t *testing.T) {
	const all, each = 20, 3
	connections := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","expires_in":3600}`))
	})
	mux.HandleFunc("GET /webhooks/listen", func(w http.ResponseWriter, r *http.Request) {
		connections++
		if connections%3 == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		from := 0
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			if _, err := fmt.Sscanf(last, "p%d", &from); err != nil {
				t.Errorf("Last-Event-ID %q", last)
			}
		}
		_, _ = fmt.Fprintf(w, ": listening\nid: p%d\n\n", from)
		for n := from; n < min(from+each, all); n++ {
			_, _ = fmt.Fprintf(w, "id: p%d\nevent: x\ndata: {\"headers\":{},\"body\":\"%d\"}\n\n", n+1, n)
		}
		_, _ = fmt.Fprintf(w, "id: p%d\nevent: transactionStatus\ndata: {\"headers", from+each+1) // torn
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, MaxBackoff: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var positions []string
	broken, n := 0, 0
	options := client.ListenOptions{
		Connected: func(position string) { positions = append(positions, position) },
		Broken:    func(error) { broken++ },
	}
	for delivery, err := range c.ListenWith(ctx, options) {
		if err != nil || delivery.Body != fmt.Sprint(n) {
			t.Fatalf("delivery %d: %+v, %v", n, delivery, err)
		}
		if n++; n == all {
			break
		}
	}
	if connections < all/each || broken != connections-1 {
		t.Errorf("%d connections, %d broken", connections, broken)
	}
	if got := strings.Join(positions, " "); got != "p0 p3 p6 p9 p12 p15 p18" {
		t.Errorf("the positions are %s", got)
	}
}

// The stream ends with the reason of a refusal.
func TestListenEndsWhenItIsRefused(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","expires_in":3600}`))
	})
	mux.HandleFunc("GET /webhooks/listen", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(
			`{"errors":[{"code":"urn:svc:platform:billing:error:auth:insufficient-scope"}],"traceId":"t"}`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	iterations := 0
	for _, err := range client.New(client.Config{BaseURL: server.URL}).Listen(t.Context()) {
		if iterations++; !client.Has(err, "auth:insufficient-scope") {
			t.Error(err)
		}
	}
	if iterations != 1 {
		t.Errorf("%d iterations", iterations)
	}
}

// The signatures bind body, id and time to a secret. During a rotation one of two is enough.
func TestParseEventRefusesWhatIsNotSigned(t *testing.T) {
	body := []byte(`{"data":{"idempotencyKey":"evt_1"},"traceId":"t"}`)
	secret := func(b byte) string {
		return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
	}
	current, next := secret(1), secret(2)
	now := time.Now()
	signed := func(at time.Time, secrets ...string) http.Header {
		return client.SignWebhook("evt_1", at, body, secrets...)
	}
	without := func(header http.Header, name string) http.Header {
		header.Del(name)
		return header
	}
	with := func(header http.Header, name, value string) http.Header {
		header.Set(name, value)
		return header
	}
	for name, c := range map[string]struct {
		header  http.Header
		secrets []string
		want    error
	}{
		"signed":                   {signed(now, current), []string{current}, nil},
		"rotation, current secret": {signed(now, current, next), []string{current}, nil},
		"rotation, next secret":    {signed(now, current, next), []string{next}, nil},
		"receiver with both":       {signed(now, current), []string{next, current}, nil},
		"x-svc-signature alone": {
			without(signed(now, current), "webhook-signature"), []string{current}, client.ErrSignature,
		},
		"other secret": {signed(now, next), []string{current}, client.ErrSignature},
		"old, without the headers of Standard Webhooks": {
			without(without(without(signed(now.Add(-time.Hour), current), "webhook-signature"), "webhook-id"),
				"webhook-timestamp"), []string{current}, client.ErrSignature,
		},
		"no signature":     {http.Header{}, []string{current}, client.ErrSignature},
		"no secret":        {signed(now, current), nil, client.ErrSignature},
		"empty secret":     {signed(now, ""), []string{""}, client.ErrSignature},
		"empty whsec_":     {signed(now, "whsec_"), []string{"whsec_"}, client.ErrSignature},
		"other id":         {with(signed(now, current), "webhook-id", "evt_2"), []string{current}, client.ErrSignature},
		"old":              {signed(now.Add(-6*time.Minute), current), []string{current}, client.ErrStale},
		"of the future":    {signed(now.Add(6*time.Minute), current), []string{current}, client.ErrStale},
		"a slow transport": {signed(now.Add(-4*time.Minute), current), []string{current}, nil},
		"old with a new time": {
			with(signed(now.Add(-time.Hour), current), "webhook-timestamp", strconv.FormatInt(now.Unix(), 10)),
			[]string{current}, client.ErrSignature,
		},
		"other version": {
			with(signed(now, current), "webhook-signature",
				strings.Replace(signed(now, current).Get("webhook-signature"), "v1,", "v2,", 1)),
			[]string{current}, client.ErrSignature,
		},
	} {
		if _, err := client.ParseEvent(c.header, body, c.secrets...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	changed := append(bytes.Clone(body), ' ')
	if _, err := client.ParseEvent(signed(now, current), changed, current); !errors.Is(err, client.ErrSignature) {
		t.Errorf("another body: %v", err)
	}
}

// x-svc-signature binds the body alone to a secret: ParseEventBodySignature looks at no time.
func TestParseEventBodySignature(t *testing.T) {
	body := []byte(`{"data":{"idempotencyKey":"evt_1"},"traceId":"t"}`)
	signed := client.SignWebhook("evt_1", time.Now().Add(-time.Hour), body, "current")
	plain := http.Header{client.SignatureHeader: signed[client.SignatureHeader]}
	for name, c := range map[string]struct {
		header  http.Header
		body    string
		secrets []string
		want    error
	}{
		"signed":               {plain, string(body), []string{"next", "current"}, nil},
		"with further headers": {signed, string(body), []string{"current"}, nil},
		"other secret":         {plain, string(body), []string{"next"}, client.ErrSignature},
		"other body":           {plain, string(body) + " ", []string{"current"}, client.ErrSignature},
		"no signature":         {http.Header{}, string(body), []string{"current"}, client.ErrSignature},
		"not base64":           {http.Header{client.SignatureHeader: {"?"}}, string(body), []string{"current"}, client.ErrSignature},
		"empty secret": {
			client.SignWebhook("evt_1", time.Now(), body, ""), string(body), []string{""}, client.ErrSignature,
		},
	} {
		event, err := client.ParseEventBodySignature(c.header, []byte(c.body), c.secrets...)
		if !errors.Is(err, c.want) || err == nil && event.IdempotencyKey != "evt_1" {
			t.Errorf("%s: %+v, %v, want %v", name, event, err, c.want)
		}
	}
}
