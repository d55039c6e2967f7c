package console

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"

	"partnerbilling/models"
)

// maxLinks is the maximum number of open sign-in links. One more replaces the oldest.
const maxLinks = 16

// Grant is what a sign-in link grants: the credentials to sign in with, and the first Sites of the
// session.
type Grant struct {
	ClientID     models.ClientID
	ClientSecret string
	Sites        []models.SiteID
}

// SignInLinks holds sign-in links, each of which signs in once. They are in memory, so only the
// process that has issued a link accepts it. A nil *SignInLinks holds none. It is safe for
// concurrent use.
type SignInLinks struct {
	mu     sync.Mutex
	open   []openLink    // oldest first
	onUsed func(g Grant) // nil: nothing happens
}

// openLink is a link that has not been used.
type openLink struct {
	digest [sha256.Size]byte // of the link's token
	grant  Grant
}

// NewSignInLinks returns an empty set. onUsed is called with the grant of each link that is used.
// It may be nil, and must not block.
func NewSignInLinks(onUsed func(Grant)) *SignInLinks { return &SignInLinks{onUsed: onUsed} }

// Issue makes a link that grants g, and returns its URL path.
func (l *SignInLinks) Issue(g Grant) (path string) {
	token := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, openLink{sha256.Sum256([]byte(token)), g})
	l.open = l.open[max(0, len(l.open)-maxLinks):]
	return Path + "/enter/" + token
}

// find returns the index of an open link, or -1. The caller holds l.mu.
func (l *SignInLinks) find(token string) int {
	digest := sha256.Sum256([]byte(token))
	for i := range l.open {
		if l.open[i].digest == digest {
			return i
		}
	}
	return -1
}

// isOpen reports whether a link can still be used, without using it.
func (l *SignInLinks) isOpen(token string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(token) >= 0
}

// use removes an open link and returns its grant. ok is false if the link is not open.
func (l *SignInLinks) use(token string) (g Grant, ok bool) {
	if l == nil {
		return g, false
	}
	l.mu.Lock()
	i := l.find(token)
	if i >= 0 {
		g, ok = l.open[i].grant, true
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	if ok && l.onUsed != nil {
		l.onUsed(g)
	}
	return g, ok
}
