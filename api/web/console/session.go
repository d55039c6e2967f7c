package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

const (
	cookieName = "svc_console"
	// maxCookieSize is the longest cookie that is looked at; browsers keep no longer ones.
	maxCookieSize = 4096
	// sessionLifetime is that of a session at most: an access token ends then.
	sessionLifetime = time.Hour
	// maxSites is how many Sites a session remembers.
	maxSites = 12
)

// session is all that is known of a signed-in engineer, sealed into a cookie: the service keeps
// nothing. Before the sign-in it holds the CSRF token alone.
type session struct {
	CSRF    string          `json:"c"`
	Token   string          `json:"t,omitempty"` // the access token; "" before the sign-in
	Expires int64           `json:"e"`           // Unix seconds, wall time
	Sites   []models.SiteID `json:"s,omitempty"` // named by the user, the latest last
}

func newSession(expires time.Time) session {
	return session{CSRF: rand.Text(), Expires: expires.Unix()}
}

// remember adds a Site as the latest one.
func (s *session) remember(site models.SiteID) {
	s.Sites = slices.DeleteFunc(s.Sites, func(known models.SiteID) bool { return known == site })
	s.Sites = append(s.Sites, site)
	s.Sites = s.Sites[max(0, len(s.Sites)-maxSites):]
}

// errSealed says that a text was not sealed by this service for this purpose, or with a key that
// has retired.
var errSealed = errors.New("console: not sealed by this service")

var sealEncoding = base64.RawURLEncoding.Strict()

// A sealed text is base64url(key id ‖ salt ‖ nonce ‖ ciphertext ‖ tag). The salt gives each one a
// key of its own.
const (
	saltSize  = 16
	nonceSize = 12
	headSize  = len(models.KeyID{}) + saltSize + nonceSize
)

// sealKey is the service key behind sessions and receiver addresses; each derives keys of its own
// from it.
const sealKey = models.KeyPaginationLink

// seal encrypts and authenticates a session.
func (c *Console) seal(ctx context.Context, s session) (string, error) {
	plain, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("console: seal a session: %w", err)
	}
	key, err := c.Keys.Current(ctx, sealKey)
	if err != nil {
		return "", fmt.Errorf("console: seal a session: %w", err)
	}
	head := make([]byte, headSize)
	copy(head, key.ID[:])
	rand.Read(head[len(key.ID):]) // never fails
	aead, err := sessionCipher(key, head)
	if err != nil {
		return "", fmt.Errorf("console: seal a session: %w", err)
	}
	return sealEncoding.EncodeToString(aead.Seal(head, head[headSize-nonceSize:], plain, nil)), nil
}

// open is errSealed for anything that seal did not make, and for a session that has ended.
func (c *Console) open(ctx context.Context, text string) (session, error) {
	var s session
	if len(text) > maxCookieSize {
		return s, errSealed
	}
	raw, err := sealEncoding.DecodeString(text)
	if err != nil || len(raw) < headSize {
		return s, errSealed
	}
	head := raw[:headSize]
	key, err := c.Keys.ByID(ctx, models.KeyID(head[:len(models.KeyID{})]))
	switch {
	case errors.Is(err, models.ErrNotFound), err == nil && key.Purpose != sealKey:
		return s, errSealed
	case err != nil:
		return s, fmt.Errorf("console: open a session: %w", err)
	}
	aead, err := sessionCipher(key, head)
	if err != nil {
		return s, fmt.Errorf("console: open a session: %w", err)
	}
	plain, err := aead.Open(nil, head[headSize-nonceSize:], raw[headSize:], nil)
	if err != nil || json.Unmarshal(plain, &s) != nil || c.Now().Unix() >= s.Expires {
		return session{}, errSealed
	}
	return s, nil
}

func sessionCipher(key models.Key, head []byte) (cipher.AEAD, error) {
	secret, err := hkdf.Key(sha256.New, key.Secret, head[len(key.ID):headSize-nonceSize], "console session", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// cookie carries a session. Without one it ends the browser's.
func (c *Console) cookie(sealed string, expires int64) *http.Cookie {
	cookie := &http.Cookie{ //nolint:gosec // Secure if the service is reached by HTTPS
		Name: cookieName, Value: sealed, Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: strings.HasPrefix(c.PublicBaseURL, "https://"), MaxAge: int(expires - c.Now().Unix()),
	}
	if sealed == "" {
		cookie.MaxAge = -1
	}
	return cookie
}
