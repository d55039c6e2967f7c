package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"partnerbilling/models/seal"
)

// KeyPurpose is the use of a service key.
type KeyPurpose string

// The purposes of service keys.
const (
	KeyAccessToken KeyPurpose = "accessToken" // signs access tokens; the secret is an Ed25519 seed
	KeySignupLink  KeyPurpose = "signupLink"  // derives the tokens of sign-up links
	// KeySealedText derives the keys of pagination cursors, console sessions and receiver
	// addresses.
	KeySealedText KeyPurpose = "paginationLink"
)

// KeyPurposes are all purposes.
var KeyPurposes = []KeyPurpose{KeyAccessToken, KeySignupLink, KeySealedText}

// KeySecretSize is the length of every service key's secret in bytes.
const KeySecretSize = 32

// KeyActivationDelay is the time from a rotation to the first use of the new key. It gives every
// process and every cache of the JWKS document time to load the key.
const KeyActivationDelay = 10 * time.Minute

// Lifetime returns the maximum validity of anything made with a key of this purpose, with a margin.
// A replaced key retires this long after its last use. The contract with partners sets the bounds:
// tokens 1 hour, invitations 30 days, pagination links 24 hours.
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
	// ErrKeyRotating says that a purpose has two live keys: the previous rotation has not ended.
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
	ActiveAt  Millis // may make new tokens and cursors from then on
	RetiredAt Millis // everything made with it is invalid from then on; 0: not set
}

// String names the key without its secret.
func (k Key) String() string { return string(k.Purpose) + " " + k.ID.String() }

// GoString names the key without its secret.
func (k Key) GoString() string { return k.String() }

func (k Key) retired(now Millis) bool { return k.RetiredAt != 0 && k.RetiredAt <= now }

// The freshness of a process's copy of the keys.
const (
	keysFreshFor    = time.Minute      // an older copy is read again before it is used
	keysRunEvery    = 20 * time.Second // interval of Run, short enough that callers do not wait
	keysMissEvery   = time.Second      // minimum interval between reads for unknown ids
	keysLoadTimeout = 2 * time.Second  // bounds a read, and the rate of attempts to replace an old copy
)

// Keys is one process's copy of the service keys. It reads them on first use, when the copy is old,
// and, at a limited rate, for an unknown key id. If Postgres does not answer, the old copy stays in
// use. It is safe for concurrent use.
type Keys struct {
	store *Store
	ring  *seal.Keyring
	now   func() time.Time // measures ages only

	loading chan struct{} // holds a token while a caller loads
	mu      sync.Mutex
	copied  *keyCopy
	triedAt time.Time
	loadErr error // of the read at triedAt, if Postgres did not answer
}

type keyCopy struct {
	keys        []Key // newest ActiveAt first
	readAt      time.Time
	databaseNow Millis // at readAt
}

// databaseTime returns the database's real time, advanced by this process's monotonic clock.
func (k *Keys) databaseTime(c *keyCopy) Millis { return c.databaseNow.Add(k.now().Sub(c.readAt)) }

// NewKeys returns an empty copy, without reading anything.
func NewKeys(store *Store, ring *seal.Keyring) *Keys {
	monotonic := time.Now //nolint:forbidigo // measures the age of a copy only
	return &Keys{store: store, ring: ring, now: monotonic, loading: make(chan struct{}, 1)}
}

// Keyring returns the ring that opens the keys.
func (k *Keys) Keyring() *seal.Keyring { return k.ring }

// Ensure creates missing keys, once across all processes, and reads all keys. Every process calls
// it at start. seal.ErrOpen: the master keys cannot open a stored key.
func (k *Keys) Ensure(ctx context.Context) error {
	if err := k.store.EnsureKeys(ctx, k.ring); err != nil {
		return err
	}
	return k.Refresh(ctx)
}

// Run refreshes the copy until ctx ends. Without Run, callers refresh the copy when they use it.
func (k *Keys) Run(ctx context.Context) {
	ticker := time.NewTicker(keysRunEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = k.Refresh(ctx) // the old copy stays in use; callers that find it too old get the error
		}
	}
}

// Current returns the newest active key of a purpose, with which new tokens or cursors are made.
// Errors: ErrNoKey if there is none; ErrUnavailable if no copy exists and Postgres does not answer.
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

// ByID returns the key with the id, active or not. Errors: ErrNotFound if it has retired, or if the
// last read lacks it; the error of the last read if Postgres did not answer.
func (k *Keys) ByID(ctx context.Context, id KeyID) (Key, error) {
	c, err := k.copyFor(ctx)
	if err != nil {
		return Key{}, err
	}
	if key, ok := k.find(c, id); ok {
		return key, nil
	}
	c, err = k.reloadForMiss(ctx, c)
	if key, ok := k.find(c, id); ok {
		return key, nil
	}
	return Key{}, cmp.Or(err, notFoundError("key"))
}

func (k *Keys) find(c *keyCopy, id KeyID) (Key, bool) {
	i := slices.IndexFunc(c.keys, func(key Key) bool { return key.ID == id })
	if i < 0 || c.keys[i].retired(k.databaseTime(c)) {
		return Key{}, false
	}
	return c.keys[i], true
}

// Live returns all keys of a purpose that have not retired, newest first, including keys that are
// not active yet.
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

// copyFor returns a fresh copy, or the old copy if a fresh one is not available.
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

// reloadForMiss reads the keys again because seen lacks one, unless the rate limit or another
// caller's read prevents that. It returns the latest copy, and the error of the last read.
func (k *Keys) reloadForMiss(ctx context.Context, seen *keyCopy) (*keyCopy, error) {
	if c, tried := k.latest(); c == seen && k.now().Sub(tried) >= keysMissEvery {
		k.tryRefresh(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copied, k.loadErr
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

// tryRefresh refreshes the copy unless another caller is doing so. It reports whether the copy is
// new.
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
	k.triedAt, k.loadErr = k.now(), err
	if errors.Is(err, seal.ErrOpen) || errors.Is(err, context.Canceled) {
		k.loadErr = nil
	}
	if err != nil {
		return err
	}
	k.copied = &keyCopy{keys: keys, readAt: start, databaseNow: now}
	return nil
}
