package console

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"

	"partnerbilling/models"
)

// maxLinks is how many sign-in links are open at once; the oldest gives way.
const maxLinks = 16

// Grant names the API client of a sign-in link, and the Sites that its session begins with.
type Grant struct {
	ClientID     models.ClientID
	ClientSecret string
	Sites        []models.SiteID
}

// SignInLinks are links that sign in once, each for the process that made it. They are safe for
// concurrent use.
type SignInLinks struct {
	mu     sync.Mutex
	open   []openLink    // oldest first
	onUsed func(g Grant) // nil: nothing happens
}

type openLink struct {
	digest [sha256.Size]byte // of the link's token
	grant  Grant
}

// NewSignInLinks makes an empty set. onUsed is told of each link that was used; it may be nil, and
// must not wait.
func NewSignInLinks(onUsed func(Grant)) *SignInLinks { return &SignInLinks{onUsed: onUsed} }

// Issue makes a link and returns its path.
func (l *SignInLinks) Issue(g Grant) (path string) {
	token := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, openLink{sha256.Sum256([]byte(token)), g})
	l.open = l.open[max(0, len(l.open)-maxLinks):]
	return Path + "/enter/" + token
}

// find is the index of a link; -1 if it is unknown or was used.
func (l *SignInLinks) find(token string) int {
	digest := sha256.Sum256([]byte(token))
	for i := range l.open {
		if l.open[i].digest == digest {
			return i
		}
	}
	return -1
}

// isOpen reports whether a link can still be used. It uses nothing up.
func (l *SignInLinks) isOpen(token string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(token) >= 0
}

// use takes a link, for the first caller only.
func (l *SignInLinks) use(token string) (g Grant, ok bool) {
	if l == nil {
		return g, false
	}
	l.mu.Lock()
	i := l.find(token)
	if i >= 0 {
		g, ok = l.open[i].grant, true
		l.open = append(l.open[:i:i], l.open[i+1:]...)
	}
	l.mu.Unlock()
	if ok && l.onUsed != nil {
		l.onUsed(g)
	}
	return g, ok
}
