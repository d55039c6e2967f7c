package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader is the header with the signature of a webhook's body alone.
const SignatureHeader = "X-Svc-Signature"

// The headers of Standard Webhooks. Their signature covers the body, the id and the time.
const (
	webhookIDHeader        = "Webhook-Id"
	webhookTimeHeader      = "Webhook-Timestamp"
	webhookSignatureHeader = "Webhook-Signature"
)

// WebhookTolerance is the maximum difference between the time of a webhook's signature and the
// receiver's clock.
const WebhookTolerance = 5 * time.Minute

var (
	// ErrSignature reports a webhook that the service did not sign, or that was changed in transit.
	ErrSignature = errors.New("client: the signature does not match the body")
	// ErrStale reports a webhook whose time of signature differs from now by more than
	// WebhookTolerance. The webhook is a replay, or a clock is wrong.
	ErrStale = errors.New("client: the webhook was not signed within the last minutes")
)

// SignWebhook returns the signature headers that the service sends with a webhook, for tests of a
// receiver. The first secret makes x-svc-signature. Each secret adds a signature to
// webhook-signature, as during a rotation.
func SignWebhook(id string, at time.Time, body []byte, secrets ...string) http.Header {
	header := http.Header{}
	header.Set(webhookIDHeader, id)
	header.Set(webhookTimeHeader, strconv.FormatInt(at.Unix(), 10))
	var signatures []string
	for i, secret := range secrets {
		if i == 0 {
			header.Set(SignatureHeader, base64.StdEncoding.EncodeToString(mac([]byte(secret), body)))
		}
		signed := base64.StdEncoding.EncodeToString(mac(secretKey(secret), signedContent(header, body)))
		signatures = append(signatures, "v1,"+signed)
	}
	if len(signatures) > 0 {
		header.Set(webhookSignatureHeader, strings.Join(signatures, " "))
	}
	return header
}

// verify returns nil if one of the secrets has signed the webhook with its id and time, else
// ErrSignature or ErrStale.
func verify(header http.Header, body []byte, secrets []string) error {
	if header.Get(webhookSignatureHeader) == "" {
		return fmt.Errorf("%w: there is no webhook-signature", ErrSignature)
	}
	if !signedByOne(header, body, usable(secrets)) {
		return ErrSignature
	}
	second, err := strconv.ParseInt(header.Get(webhookTimeHeader), 10, 64)
	if err != nil || time.Until(time.Unix(second, 0)).Abs() > WebhookTolerance {
		return ErrStale
	}
	return nil
}

// verifyBody returns nil if one of the secrets has made x-svc-signature, else ErrSignature.
func verifyBody(header http.Header, body []byte, secrets []string) error {
	given, err := base64.StdEncoding.DecodeString(header.Get(SignatureHeader))
	if err != nil {
		return ErrSignature
	}
	for _, secret := range usable(secrets) {
		if hmac.Equal(given, mac([]byte(secret), body)) {
			return nil
		}
	}
	return ErrSignature
}

// usable returns the secrets that are not empty. An empty secret, such as that of an unset
// variable, would accept webhooks of any sender.
func usable(secrets []string) []string {
	return slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(secretKey(s)) == 0 })
}

// signedByOne reports whether one of the secrets has made one of the signatures in
// webhook-signature.
func signedByOne(header http.Header, body []byte, secrets []string) bool {
	content := signedContent(header, body)
	for signature := range strings.FieldsSeq(header.Get(webhookSignatureHeader)) {
		version, text, _ := strings.Cut(signature, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if version != "v1" || err != nil {
			continue
		}
		for _, secret := range secrets {
			if hmac.Equal(given, mac(secretKey(secret), content)) {
				return true
			}
		}
	}
	return false
}

// signedContent returns the bytes that webhook-signature covers.
func signedContent(header http.Header, body []byte) []byte {
	content := []byte(header.Get(webhookIDHeader) + "." + header.Get(webhookTimeHeader) + ".")
	return append(content, body...)
}

// secretKey returns the key of webhook-signature: the bytes that the secret encodes in Base64. It
// ignores the prefix whsec_, which may be missing. A secret that is not Base64 is its own key.
func secretKey(secret string) []byte {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return []byte(secret)
	}
	return key
}

// mac returns the HMAC-SHA256 of the message.
func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}
