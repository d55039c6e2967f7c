package models

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// webhookSecretPrefix begins every secret's text.
const webhookSecretPrefix = "whsec_"

const (
	// WebhookSecretOverlap is how long the previous secret still signs after a rotation's
	// activation.
	WebhookSecretOverlap = 24 * time.Hour
	// WebhookActivateWithin is the maximum delay of a rotation's activation.
	WebhookActivateWithin = 30 * 24 * time.Hour
	// maxWebhookSecrets is the maximum number of secrets that sign at a time. A further secret
	// retires the oldest.
	maxWebhookSecrets = 3
)

// WebhookSecret is a partner's signing secret: "whsec_" and 32 bytes in standard base64. Only
// Reveal returns the text; every other way to print it hides it.
type WebhookSecret struct{ text string }

// NewWebhookSecret returns a random secret.
func NewWebhookSecret() WebhookSecret {
	b := make([]byte, sha256.Size)
	rand.Read(b) // never fails
	return WebhookSecret{webhookSecretPrefix + base64.StdEncoding.EncodeToString(b)}
}

// Reveal returns the secret's text.
func (s WebhookSecret) Reveal() string { return s.text }

// String hides the secret.
func (s WebhookSecret) String() string { return webhookSecretPrefix + "…" }

// GoString hides the secret.
func (s WebhookSecret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s WebhookSecret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// bytes are the 32 bytes that the text encodes.
func (s WebhookSecret) bytes() []byte {
	b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.text, webhookSecretPrefix)) // the text is our own
	return b
}

// WebhookSecrets are an organisation's secrets at one moment.
type WebhookSecrets struct {
	Current WebhookSecret   // makes x-svc-signature
	Live    []WebhookSecret // make webhook-signature, newest first; Current is one of them
}

// WebhookHeader is one header of a notification.
type WebhookHeader struct{ Name, Value string }

// Sign returns the signature headers of an event's notification: x-svc-signature, keyed with the
// secret's text, and those of Standard Webhooks, keyed with the bytes that the text encodes. at is
// real time, which receivers compare with their own. attempt counts from 1. Without secrets there
// are no signatures.
func (s WebhookSecrets) Sign(e *WebhookEvent, at time.Time, attempt int) []WebhookHeader {
	id, second := e.ID.String(), strconv.FormatInt(at.Unix(), 10)
	headers := []WebhookHeader{
		{"webhook-id", id},
		{"webhook-timestamp", second},
		{"svc-event-type", string(e.Type)},
		{"svc-webhook-attempt", strconv.Itoa(attempt)},
		{"content-type", "application/json;charset=UTF-8"},
	}
	if e.Test {
		headers = append(headers, WebhookHeader{"svc-webhook-test", "true"})
	}
	if len(s.Live) == 0 {
		return headers
	}
	signed := []byte(id + "." + second + ".")
	signed = append(signed, e.Body...)
	signatures := make([]string, len(s.Live))
	for i, secret := range s.Live {
		signatures[i] = "v1," + sign(secret.bytes(), signed)
	}
	return append(headers,
		WebhookHeader{"webhook-signature", strings.Join(signatures, " ")},
		WebhookHeader{"x-svc-signature", sign([]byte(s.Current.text), e.Body)})
}

// sign is the standard base64 of the HMAC-SHA256.
func sign(key, message []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
