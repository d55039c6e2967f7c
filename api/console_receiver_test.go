package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/models"
)

// signed returns the headers of a notification as the service would send it at the given time.
func (c *consoles) signed(t *testing.T, body string, id models.WebhookEventID, at time.Time) http.Header {
	t.Helper()
	secrets, err := c.store.WebhookSecrets(t.Context(), c.keys.Keyring(), c.owner)
	check(t, err)
	header := http.Header{}
	for _, h := range secrets.Sign(&models.WebhookEvent{ID: id, Body: []byte(body),
		Type: models.EventTransactionStatus}, at, 1) {
		header.Set(h.Name, h.Value)
	}
	return header
}

func TestConsoleReceiver(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open("/console/receiver").expect(200, "No endpoint leads here yet", "Nothing has arrived yet")
	page := v.submit("/console/receiver", "action", "use").expect(200, "shown this once", "leads to it")
	secret, address := page.find(`<code>(whsec_[^<]*)`),
		page.find(`<code>https://billing\.example(/console/receiver/[^<]*)`)
	v.open("/console/receiver").expect(200).lacks(secret)

	event := newEventID(t)
	body := `{"data":{"idempotencyKey":"` + event.String() +
		`","transactionStatus":"Settled","note":"<script>"},"traceId":"t"}`
	sender := c.visitor(t)
	post := func(path, body string, header http.Header) int {
		t.Helper()
		sender.header = header
		return sender.send("POST", path, "application/json", strings.NewReader(body)).status
	}
	now := time.Now()
	good := c.signed(t, body, event, now)
	if got := post(address, body, good); got != 204 {
		t.Errorf("the receiver answers %d", got)
	}
	v.open("/console/receiver").expect(200, "verified", "Transaction status: Settled", "answered 204", event.String()).
		lacks("not verified", "came before", "<script>alert")
	if got := post(address+"/503", body, good); got != 503 {
		t.Errorf("with a status at its end the receiver answers %d", got)
	}
	v.open("/console/receiver").expect(200, "came before", "answered 503")
	for name, change := range map[string]func(http.Header) string{
		"body":      func(http.Header) string { return body + " " },
		"signature": func(h http.Header) string { h.Set("X-Svc-Signature", "AAAA"); return body },
		"standard":  func(h http.Header) string { h.Set("Webhook-Signature", "v1,AAAA"); return body },
		"id":        func(h http.Header) string { h.Set("Webhook-Id", newEventID(t).String()); return body },
		"none":      func(h http.Header) string { clear(h); return body },
	} {
		v.submit("/console/receiver", "action", "clear").expect(303)
		header := good.Clone()
		if got := post(address, change(header), header); got != 204 {
			t.Errorf("%s: %d", name, got)
		}
		v.open("/console/receiver").expect(200, "not verified")
	}
	v.submit("/console/receiver", "action", "clear").expect(303)
	if got := post(address, body, c.signed(t, body, event, now.Add(-6*time.Minute))); got != 204 {
		t.Error(got)
	}
	v.open("/console/receiver").expect(200, "not verified")

	last := "_"
	if strings.HasSuffix(address, last) {
		last = "-"
	}
	for _, wrong := range []string{
		address[:len(address)-1] + last, address + "A", "/console/receiver/x",
		"/console/receiver/" + strings.Repeat("A", 64), address + "%0A", address[:40] + "%0D%0A" + address[40:],
	} {
		if got := post(wrong, body, good); got != 404 {
			t.Errorf("%s: %d", wrong, got)
		}
	}
	if got := post(address, strings.Repeat("a", 64<<10+1), good); got != 413 {
		t.Errorf("a large body: %d", got)
	}
}

func newEventID(t *testing.T) (id models.WebhookEventID) {
	t.Helper()
	check(t, id.UnmarshalText([]byte("evt"+strings.TrimPrefix(models.NewPaymentIntentID().String(), "pi"))))
	return id
}
