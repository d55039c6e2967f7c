package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"partnerbilling/api/sealed"
	"partnerbilling/models"
)

const (
	cookieName = "svc_console"
	// maxCookieSize is the maximum length of the sealed session in a cookie, in bytes. Browsers
	// keep no cookie whose name and value are longer than 4096 bytes together.
	maxCookieSize = 4096 - len(cookieName)
	// sessionLifetime is the maximum lifetime of a session, which is that of an access token.
	sessionLifetime = time.Hour
	// maxSites is the maximum number of Sites that a session remembers.
	maxSites = 12
)

// session is the state of a browser's session. It is sealed into a cookie, and the service does not
// store it. Before the sign-in it has no access token.
type session struct {
	CSRF    string          `json:"c"`
	Token   string          `json:"t,omitempty"` // the access token; "" before the sign-in
	Expires int64           `json:"e"`           // Unix seconds, wall time
	Sites   []models.SiteID `json:"s,omitempty"` // named by the user, the latest last
}

// newSession returns a session with a new CSRF token and without an access token.
func newSession(expires time.Time) session {
	return session{CSRF: rand.Text(), Expires: expires.Unix()}
}

// remember makes a Site the latest one, and forgets the oldest ones above maxSites.
func (s *session) remember(site models.SiteID) {
	s.Sites = slices.DeleteFunc(s.Sites, func(known models.SiteID) bool { return known == site })
	s.Sites = append(s.Sites, site)
	s.Sites = s.Sites[max(0, len(s.Sites)-maxSites):]
}

// box seals sessions.
func (c *Console) box() sealed.Box {
	return sealed.Box{Keys: c.Keys, Label: "console session", MaxSize: maxCookieSize}
}

// errLongSession reports a session that is too long for a cookie, because of its access token.
var errLongSession = errors.New("console: the session does not fit into a cookie")

// seal encrypts and authenticates a session. It returns errLongSession if browsers would not keep
// the cookie.
func (c *Console) seal(ctx context.Context, s session) (string, error) {
	plain, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("console: seal a session: %w", err)
	}
	text, err := c.box().Seal(ctx, plain, nil)
	if err == nil && len(text) > maxCookieSize {
		return "", errLongSession
	}
	return text, err
}

// open decodes a session. It returns sealed.ErrInvalid for a text that seal has not made, and for a
// session that has expired.
func (c *Console) open(ctx context.Context, text string) (session, error) {
	plain, err := c.box().Open(ctx, text, nil)
	if err != nil {
		return session{}, err
	}
	var s session
	if json.Unmarshal(plain, &s) != nil || c.Now().Unix() >= s.Expires {
		return session{}, sealed.ErrInvalid
	}
	return s, nil
}

// cookie returns the cookie of a sealed session that expires at a Unix time in seconds. With sealed
// "", the cookie deletes the browser's session.
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
