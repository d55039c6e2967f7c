package console

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/requestlog"
	"partnerbilling/api/sealed"
	"partnerbilling/models"
)

// The bounds of the built-in receiver, an endpoint at which partners look at webhooks before they
// have an endpoint of their own. It keeps deliveries of each organisation in memory.
const (
	maxDeliveries      = 100             // of an organisation
	maxDeliveryBytes   = 1 << 20         // of an organisation's deliveries
	maxDeliveryOrgs    = 16              // organisations with deliveries
	maxDeliveryBody    = 64 << 10        // bytes of one body
	timestampTolerance = 5 * time.Minute // within which Standard Webhooks wants a timestamp
)

// delivery is a webhook that the receiver has received.
type delivery struct {
	At                time.Time
	EventID           string // webhook-id
	Type              string
	Attempt           string
	Headers           []requestlog.Header
	Body              string
	Status            int  // of the receiver's answer
	Signature         bool // x-svc-signature is right
	Standard          bool // webhook-signature is right
	InTime            bool // webhook-timestamp is close to the receiver's time
	KeyMatches        bool // the body's idempotencyKey is the header's
	IsTest            bool
	TransactionStatus string // "" if the event has none
}

// Verified reports whether a partner's receiver should act on the delivery.
func (d delivery) Verified() bool { return d.Signature && d.Standard && d.InTime && d.KeyMatches }

// The token in a receiver's address is base64url(key id ‖ organisation ‖ MAC). It needs no storage
// and cannot be guessed.
const (
	macSize   = 16
	tokenSize = len(models.KeyID{}) + len(models.OrganisationID{}) + macSize
)

// receiverURL returns the address of the organisation's receiver.
func (v *visit) receiverURL() (string, error) {
	key, err := v.console.Keys.Current(v.ctx, sealed.Purpose)
	if err != nil {
		return "", fmt.Errorf("console: address of the receiver: %w", err)
	}
	token := append(append(make([]byte, 0, tokenSize), key.ID[:]...), v.principal.OrganisationID[:]...)
	sum, err := receiverMAC(key, token)
	if err != nil {
		return "", err
	}
	return v.console.PublicBaseURL + Path + "/receiver/" + sealed.Encoding.EncodeToString(append(token, sum...)), nil
}

// receiverOf returns the organisation that a token names, or sealed.ErrInvalid for any other text.
func (c *Console) receiverOf(ctx context.Context, text string) (organisation models.OrganisationID, err error) {
	token, err := sealed.Encoding.DecodeString(text)
	if err != nil || len(token) != tokenSize || strings.ContainsAny(text, "\r\n") { // the decoder skips line breaks
		return organisation, sealed.ErrInvalid
	}
	key, err := c.Keys.ByID(ctx, models.KeyID(token[:len(models.KeyID{})]))
	if errors.Is(err, models.ErrNotFound) || err == nil && key.Purpose != sealed.Purpose {
		return organisation, sealed.ErrInvalid
	}
	if err != nil {
		return organisation, err
	}
	head := token[:tokenSize-macSize]
	sum, err := receiverMAC(key, head)
	if err != nil {
		return organisation, err
	}
	if !hmac.Equal(sum, token[len(head):]) {
		return organisation, sealed.ErrInvalid
	}
	return models.OrganisationID(head[len(key.ID):]), nil
}

// receiverMAC authenticates the first parts of a token.
func receiverMAC(key models.Key, message []byte) ([]byte, error) {
	secret, err := hkdf.Key(sha256.New, key.Secret, nil, "console receiver", 32)
	if err != nil {
		return nil, fmt.Errorf("console: key of the receiver: %w", err)
	}
	return mac(secret, message)[:macSize], nil
}

// keepDelivery keeps a webhook of the organisation. It answers with the status at the end of the
// receiver's address; see answerStatus.
func (c *Console) keepDelivery(w http.ResponseWriter, r *http.Request, organisation models.OrganisationID) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxDeliveryBody+1))
	switch {
	case err != nil:
		http.Error(w, "The body cannot be read.", http.StatusBadRequest)
		return
	case len(body) > maxDeliveryBody:
		http.Error(w, "The body is too large.", http.StatusRequestEntityTooLarge)
		return
	}
	secrets, err := c.Secrets(r.Context(), organisation)
	if err != nil && !errors.Is(err, models.ErrNoWebhookSecret) { // without a secret, no signature is right
		http.Error(w, "The receiver is not available.", http.StatusServiceUnavailable)
		return
	}
	// The server reuses its buffers, so headers are copied.
	header := func(name string) string {
		return requestlog.Clip(strings.Clone(r.Header.Get(name)), requestlog.MaxHeader)
	}
	d := delivery{
		At: c.Now(), EventID: header("Webhook-Id"), Type: header("Svc-Event-Type"),
		Attempt: header("Svc-Webhook-Attempt"), IsTest: header("Svc-Webhook-Test") == "true",
		Body: string(body), Status: answerStatus(r.PathValue("status")),
	}
	size := len(body)
	for _, name := range []string{
		"Content-Type", "X-Svc-Signature", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Svc-Event-Type",
		"Svc-Webhook-Attempt", "Svc-Webhook-Test", "User-Agent",
	} {
		if value := header(name); value != "" {
			d.Headers = append(d.Headers, requestlog.Header{Name: name, Value: value})
			size += len(name) + len(value)
		}
	}
	d.verify(secrets, c.Now(), r.Header)
	c.deliveries.Add(organisation, d, size)
	w.WriteHeader(d.Status)
}

// answerStatus returns the status that text names, if it is from 200 to 599, and otherwise 204.
func answerStatus(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 200 && n <= 599 {
		return n
	}
	return http.StatusNoContent
}

// verify checks a webhook as a partner's receiver does. It signs the received body with the
// received timestamp, and compares the signatures.
func (d *delivery) verify(secrets models.WebhookSecrets, now time.Time, h http.Header) {
	var body struct {
		Data struct {
			IdempotencyKey    string `json:"idempotencyKey"`
			TransactionStatus string `json:"transactionStatus"`
		} `json:"data"`
	}
	_ = json.Unmarshal([]byte(d.Body), &body) // missing fields stay empty
	d.KeyMatches = d.EventID != "" && body.Data.IdempotencyKey == d.EventID
	d.TransactionStatus = body.Data.TransactionStatus
	event := models.WebhookEvent{Body: []byte(d.Body)}
	second, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || event.ID.UnmarshalText([]byte(d.EventID)) != nil {
		return
	}
	sent := time.Unix(second, 0)
	for _, header := range secrets.Sign(&event, sent, 1) {
		switch header.Name {
		case "x-svc-signature":
			d.Signature = hmac.Equal([]byte(header.Value), []byte(h.Get("X-Svc-Signature")))
		case "webhook-signature":
			d.Standard = hmac.Equal([]byte(header.Value), []byte(h.Get("Webhook-Signature")))
		}
	}
	d.InTime = now.Sub(sent).Abs() <= timestampTolerance
}
