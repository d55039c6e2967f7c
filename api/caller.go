package api

import (
	"hash/maphash"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

// caller is the party that a request's slot counts for. It is an organisation, a client of no
// organisation or, for requests that are not authenticated, a group of client addresses.
type caller struct {
	id    uuid.UUID
	group uint64 // of the address; 0 if id is known
}

// callerOf returns the caller of an authenticated request: the organisation, or the client of no
// organisation.
func callerOf(p *Principal) caller {
	if p.OrganisationID.IsZero() {
		return caller{id: uuid.UUID(p.ClientID)}
	}
	return caller{id: uuid.UUID(p.OrganisationID)}
}

// addressGroups is the number of groups into which client addresses are hashed. It bounds the share
// of the slots that unauthenticated requests get, however many addresses send them.
const addressGroups = 32

// callerCacheSize is the number of tokens whose callers a process remembers.
const callerCacheSize = 10_000

// callerCache remembers the callers of tokens that have been verified. A request with such a token
// gets its slot as its caller's, although its own token is verified only later. It counts for its
// group of addresses instead if the token has expired or failed a check, or if this process has not
// verified it for this address yet.
//
// A callerCache is safe for concurrent use.
type callerCache struct {
	seed  maphash.Seed
	now   func() time.Time
	known *lru.Cache[uint64, knownCaller] // by callerCache.key
}

// knownCaller is the caller of a verified token.
type knownCaller struct {
	caller
	expires time.Time // of the token; zero if it has no end
}

func newCallerCache(now func() time.Time) *callerCache {
	known, err := lru.New[uint64, knownCaller](callerCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &callerCache{seed: maphash.MakeSeed(), now: now, known: known}
}

// key returns the hash of a request's Authorization header and address. ok is false without the
// header.
func (c *callerCache) key(r *Request) (key uint64, ok bool) {
	authorization := r.fast.Request.Header.Peek("Authorization")
	if len(authorization) == 0 {
		return 0, false
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.Write(authorization) // never fails
	maphash.WriteComparable(&h, r.address)
	return h.Sum64(), true
}

// of returns the caller of a request that is not authenticated yet.
func (c *callerCache) of(r *Request) caller {
	if key, ok := c.key(r); ok {
		if known, ok := c.known.Get(key); ok && (known.expires.IsZero() || c.now().Before(known.expires)) {
			return known.caller
		}
	}
	return caller{group: 1 + maphash.Comparable(c.seed, r.address)%addressGroups}
}

// learn remembers the caller of an authenticated request.
func (c *callerCache) learn(r *Request) {
	by := callerOf(&r.Principal)
	if r.slot.caller == by { // the token is known
		return
	}
	if key, ok := c.key(r); ok {
		c.known.Add(key, knownCaller{by, r.Principal.Expires})
	}
}

// forget removes the remembered caller of a request whose token is no longer valid.
func (c *callerCache) forget(r *Request) {
	if key, ok := c.key(r); ok {
		c.known.Remove(key)
	}
}
