package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// KeyPurpose says what a service key makes.
type KeyPurpose string

// The purposes of service keys.
const (
	KeyAccessToken    KeyPurpose = "accessToken"    // signs access tokens; the secret is an Ed25519 seed
	KeySignupLink     KeyPurpose = "signupLink"     // derives the tokens of sign-up links
	KeyPaginationLink KeyPurpose = "paginationLink" // encrypts the cursors of pagination links
)

// KeyPurposes are all purposes.
var KeyPurposes = []KeyPurpose{KeyAccessToken, KeySignupLink, KeyPaginationLink}

// KeySecretSize is the length of every service key's secret in bytes.
const KeySecretSize = 32

// KeyActivationDelay is the time between the making of a new key and its first use, so that every process and every
// cache of the JWKS document knows a key before something made with it arrives.
const KeyActivationDelay = 10 * time.Minute

// Lifetime is how long something made with a key of this purpose stays valid at most, with a margin. A key that has
// been replaced retires this long after its last use. The bounds come from the contract with partners: tokens live
// for 1 hour, invitations for 30 days, pagination links for 24 hours.
func (p KeyPurpose) Lifetime() time.Duration {
	switch p {
	case KeyAccessToken:
		return 2 * time.Hour
	case KeySignupLink:
		return 31 * 24 * time.Hour
	default:
		return 25 * time.Hour
	}
}

var (
	// ErrKeyRotating says that a purpose has two live keys already: the one before has not retired yet.
	ErrKeyRotating = errors.New("models: the last rotation of this key has not ended")
	// ErrNoKey says that a purpose has no active key; EnsureKeys makes one.
	ErrNoKey = errors.New("models: no active key")
)

// Key is one of the service's own secrets. Its times are real time, never the sandbox's.
type Key struct {
	ID        KeyID
	Purpose   KeyPurpose
	Secret    []byte // KeySecretSize bytes
	CreatedAt Millis
	ActiveAt  Millis // from here on it may make things
	RetiredAt Millis // from here on what it made is void; 0: not decided
}

// String names the key without its secret.
func (k Key) String() string { return string(k.Purpose) + " " + k.ID.String() }

// GoString names the key without its secret.
func (k Key) GoString() string { return k.String() }

func (k Key) retired(now Millis) bool { return k.RetiredAt != 0 && k.RetiredAt <= now }

// How fresh a process keeps its copy of the keys.
const (
	keysFreshFor    = time.Minute      // an older copy is read again before it is used
	keysRunEvery    = 20 * time.Second // how often Run reads, so that nobody waits for it
	keysMissEvery   = time.Second      // an unknown id makes it read again, at most this often
	keysLoadTimeout = 2 * time.Second
)

// Keys is one process's copy of the service keys. It reads them when first asked, when the copy is old, and when a key
// is missing (bounded, so that made-up ids cost nothing). If Postgres does not answer, the old copy stays in use.
// It is safe for concurrent use.
type Keys struct {
	store *Store
	ring  *Keyring
	now   func() time.Time // measures ages only

	loading chan struct{} // holds one token; whoever has it may load
	mu      sync.Mutex
	copied  *keyCopy
	triedAt time.Time
}

type keyCopy struct {
	keys        []Key // newest ActiveAt first
	readAt      time.Time
	databaseNow Millis // at readAt
}

// databaseTime is the database's real time, by this process's monotonic clock since the copy was read.
func (k *Keys) databaseTime(c *keyCopy) Millis { return c.databaseNow.Add(k.now().Sub(c.readAt)) }

// NewKeys makes an empty copy; nothing is read yet.
func NewKeys(store *Store, ring *Keyring) *Keys {
	monotonic := time.Now //nolint:forbidigo // how old a copy is has nothing to do with what time it is
	return &Keys{store: store, ring: ring, now: monotonic, loading: make(chan struct{}, 1)}
}

// Ensure makes the keys that are missing, once over all processes, and reads all of them. Every process calls it at
// start; a master key that cannot open a key shows here as ErrSealed.
func (k *Keys) Ensure(ctx context.Context) error {
	if err := k.store.EnsureKeys(ctx, k.ring); err != nil {
		return err
	}
	return k.Refresh(ctx)
}

// Run keeps the copy fresh until ctx ends. Without it the copy is refreshed by those who use it.
func (k *Keys) Run(ctx context.Context) {
	ticker := time.NewTicker(keysRunEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = k.Refresh(ctx) // the old copy stays in use; whoever finds it too old gets the error
		}
	}
}

// Current is the key that makes new things of a purpose: the newest active one. ErrNoKey if there is none,
// ErrUnavailable if none was ever read and Postgres does not answer.
func (k *Keys) Current(ctx context.Context, purpose KeyPurpose) (Key, error) {
	c, err := k.copyFor(ctx)
	if err != nil {
		return Key{}, err
	}
	now := k.databaseTime(c)
	for _, key := range c.keys {
		if key.Purpose == purpose && key.ActiveAt <= now && !key.retired(now) {
			return key, nil
		}
	}
	return Key{}, fmt.Errorf("%w: %s", ErrNoKey, purpose)
}

// ByID is a key that has not retired, active or not; else ErrNotFound.
func (k *Keys) ByID(ctx context.Context, id KeyID) (Key, error) {
	c, err := k.copyFor(ctx)
	if err != nil {
		return Key{}, err
	}
	if key, ok := k.find(c, id); ok {
		return key, nil
	}
	if c = k.reloadForMiss(ctx, c); c == nil {
		return Key{}, notFoundError("key")
	}
	if key, ok := k.find(c, id); ok {
		return key, nil
	}
	return Key{}, notFoundError("key")
}

func (k *Keys) find(c *keyCopy, id KeyID) (Key, bool) {
	i := slices.IndexFunc(c.keys, func(key Key) bool { return key.ID == id })
	if i < 0 || c.keys[i].retired(k.databaseTime(c)) {
		return Key{}, false
	}
	return c.keys[i], true
}

// Live are all keys of a purpose that have not retired, newest first, those that are not active yet included.
func (k *Keys) Live(ctx context.Context, purpose KeyPurpose) ([]Key, error) {
	c, err := k.copyFor(ctx)
	if err != nil {
		return nil, err
	}
	var live []Key
	for _, key := range c.keys {
		if key.Purpose == purpose && !key.retired(k.databaseTime(c)) {
			live = append(live, key)
		}
	}
	return live, nil
}

// copyFor is a copy that is fresh, or the old one if no better can be had now.
func (k *Keys) copyFor(ctx context.Context) (*keyCopy, error) {
	c, tried := k.latest()
	switch {
	case c == nil:
		if err := k.Refresh(ctx); err != nil {
			return nil, err
		}
		c, _ = k.latest()
	case k.now().Sub(c.readAt) > keysFreshFor && k.now().Sub(tried) > keysLoadTimeout:
		if k.tryRefresh(ctx) {
			c, _ = k.latest()
		}
	}
	return c, nil
}

// reloadForMiss reads again because seen lacks a key; nil if it may not now, or cannot.
func (k *Keys) reloadForMiss(ctx context.Context, seen *keyCopy) *keyCopy {
	c, tried := k.latest()
	if c != seen {
		return c
	}
	if k.now().Sub(tried) < keysMissEvery || !k.tryRefresh(ctx) {
		return nil
	}
	c, _ = k.latest()
	return c
}

func (k *Keys) latest() (*keyCopy, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copied, k.triedAt
}

// Refresh reads the keys now.
func (k *Keys) Refresh(ctx context.Context) error {
	select {
	case k.loading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.loading }()
	return k.load(ctx)
}

// tryRefresh is Refresh unless another caller is at it; it reports whether the copy is new.
func (k *Keys) tryRefresh(ctx context.Context) bool {
	select {
	case k.loading <- struct{}{}:
	default:
		return false
	}
	defer func() { <-k.loading }()
	return k.load(ctx) == nil
}

func (k *Keys) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keysLoadTimeout)
	defer cancel()
	start := k.now()
	keys, now, err := k.store.serviceKeys(ctx, k.ring)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.triedAt = k.now()
	if err != nil {
		return err
	}
	k.copied = &keyCopy{keys: keys, readAt: start, databaseNow: now}
	return nil
}
