package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	// maxCookieSize is the longest accepted cookie, in bytes; browsers keep no longer ones.
	maxCookieSize = 4096
	// sessionLifetime is the longest lifetime of a session, which is that of an access token.
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

// box seals sessions.
func (c *Console) box() sealed.Box {
	return sealed.Box{Keys: c.Keys, Label: "console session", MaxSize: maxCookieSize}
}

// seal encrypts and authenticates a session.
func (c *Console) seal(ctx context.Context, s session) (string, error) {
	plain, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("console: seal a session: %w", err)
	}
	return c.box().Seal(ctx, plain, nil)
}

// open decodes a session. It returns sealed.ErrInvalid for anything that seal did not make, and for
// a session that has ended.
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

// cookie returns the cookie of a sealed session that expires at a Unix time in seconds. For a
// sealed session of "" it returns the cookie that ends the browser's session.
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
