package rail

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"partnerbilling/models"
)

const (
	signatureHeader = "Rail-Signature"
	signatureScheme = "rail-v1"
	// signatureWindow is the maximum difference between a request's timestamp and the verifier's
	// clock.
	signatureWindow = 5 * time.Minute
	maxKeyIDLength  = 64
)

// ErrInvalidSignature reports that a request has no valid signature. It does not reveal which part
// is wrong.
var ErrInvalidSignature = errors.New("rail: invalid signature")

// SigningKey is a secret shared with a gateway, and its id.
type SigningKey struct {
	ID     string // 1 to 64 of A-Z a-z 0-9 _ -
	Secret []byte
}

// Sign sets a request's Rail-Signature header. It signs the method, the URL's path and query, the
// body and the time, so none of them may change afterwards.
func (k SigningKey) Sign(r *http.Request, body []byte, now time.Time) {
	s := signature{keyID: k.ID, timestamp: models.MillisOf(now)}
	s.mac = s.sum(k.Secret, r.Method, r.URL.RequestURI(), body)
	r.Header.Set(signatureHeader, s.String())
}

// verifySignature checks the signature of a received request. secrets holds the secrets by key id.
// Every error is ErrInvalidSignature.
func verifySignature(r *http.Request, body []byte, secrets map[string][]byte, now time.Time) error {
	values := r.Header.Values(signatureHeader)
	if len(values) != 1 {
		return ErrInvalidSignature
	}
	s, err := parseSignature(values[0])
	if err != nil {
		return err
	}
	secret, known := secrets[s.keyID]
	expected := s.sum(secret, r.Method, r.RequestURI, body)
	fresh := models.MillisOf(now).Sub(s.timestamp).Abs() <= signatureWindow
	if !known || !hmac.Equal(expected[:], s.mac[:]) || !fresh {
		return ErrInvalidSignature
	}
	return nil
}

// signature is the content of the signature header.
type signature struct {
	keyID     string
	timestamp models.Millis
	mac       [sha256.Size]byte
}

// sum returns the HMAC-SHA256 of a request, as HTTP.md defines it. target is the path and query of
// the request line.
func (s signature) sum(secret []byte, method, target string, body []byte) [sha256.Size]byte {
	digest := sha256.Sum256(body)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join([]string{
		signatureScheme, s.keyID, strconv.FormatInt(int64(s.timestamp),
			10), method, target, hex.EncodeToString(digest[:]),
	}, "\n")))
	return [sha256.Size]byte(mac.Sum(nil))
}

// String returns the value of the header.
func (s signature) String() string {
	return "keyId=" + s.keyID + ",timestamp=" + strconv.FormatInt(int64(s.timestamp), 10) + ",v1=" +
		hex.EncodeToString(s.mac[:])
}

// parseSignature parses the value of the header. It accepts only the exact form that String
// returns.
func parseSignature(header string) (signature, error) {
	var s signature
	keyID, rest, _ := strings.Cut(strings.TrimPrefix(header, "keyId="), ",timestamp=")
	timestamp, digits, _ := strings.Cut(rest, ",v1=")
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || at < 0 || at > int64(maxTime) || !validKeyID(keyID) {
		return s, ErrInvalidSignature
	}
	s.keyID, s.timestamp = keyID, models.Millis(at)
	if len(digits) != hex.EncodedLen(len(s.mac)) {
		return s, ErrInvalidSignature
	}
	if _, err := hex.Decode(s.mac[:], []byte(digits)); err != nil || s.String() != header {
		return s, ErrInvalidSignature
	}
	return s, nil
}

func validKeyID(id string) bool {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	return id != "" && len(id) <= maxKeyIDLength && strings.IndexFunc(id, func(r rune) bool { return !ok(r) }) < 0
}
