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

// KeyPurpose is the use of a service key; see Key.
type KeyPurpose string

// The purposes of service keys.
const (
	KeyAccessToken KeyPurpose = "accessToken" // signs access tokens; the secret is an Ed25519 seed
	KeySignupLink  KeyPurpose = "signupLink"  // derives the tokens of sign-up links
	// KeySealedText derives the keys of texts that clients carry for the service: pagination
	// cursors, console sessions and the addresses of the console's webhook receivers.
	KeySealedText KeyPurpose = "sealedText"
)

// KeyPurposes are all purposes of service keys.
var KeyPurposes = []KeyPurpose{KeyAccessToken, KeySignupLink, KeySealedText}

// KeySecretSize is the length of every service key's secret in bytes.
const KeySecretSize = 32

// KeyActivationDelay is the time from a rotation until the new key makes tokens. It gives all
// processes, and all caches of the JWKS document, time to load the key.
const KeyActivationDelay = 10 * time.Minute

// Lifetime returns how long anything made with a key of this purpose may be valid, with a margin. A
// replaced key retires this long after its last use. The contract with partners sets the bounds: 1
// hour for tokens, 30 days for invitations, 24 hours for pagination links.
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
	// ErrKeyRotating says that a purpose has two live keys: the key that the last rotation replaced
	// has not retired yet.
	ErrKeyRotating = errors.New("models: the last rotation of this key has not ended")
	// ErrNoKey says that a purpose has no active key. Store.EnsureKeys makes one.
	ErrNoKey = errors.New("models: no active key")
)

// Key is a service key: a secret of the service that makes and verifies tokens, links and cursors.
// Its times are the database's real time, not service time. A key is live until it retires, and
// active from ActiveAt until then. The newest active key of a purpose makes new tokens; every live
// key verifies the tokens that it has made.
type Key struct {
	ID        KeyID
	Purpose   KeyPurpose
	Secret    []byte // KeySecretSize bytes
	CreatedAt Millis
	ActiveAt  Millis // from then on the key may make tokens
	RetiredAt Millis // from then on everything that the key has made is invalid; 0: not set
}

// String returns purpose and ID of the key, without the secret.
func (k Key) String() string { return string(k.Purpose) + " " + k.ID.String() }

// GoString returns the same as String, so that %#v does not print the secret.
func (k Key) GoString() string { return k.String() }

// retired reports whether the key has retired at now, in the database's real time.
func (k Key) retired(now Millis) bool { return k.RetiredAt != 0 && k.RetiredAt <= now }

// The times of a process's copy of the keys.
const (
	// keysFreshFor is the age above which a copy is read again before it is used.
	keysFreshFor = time.Minute
	// keysRunEvery is the interval between the reads of Run. It is below keysFreshFor, so that
	// callers seldom wait for a read.
	keysRunEvery = 20 * time.Second
	// keysMissEvery is the minimum interval between reads for unknown ids.
	keysMissEvery = time.Second
	// keysLoadTimeout bounds a read. It is also the minimum interval between attempts to replace an
	// old copy.
	keysLoadTimeout = 2 * time.Second
)

// Keys is one process's copy of the live service keys. It reads the keys from Postgres on first
// use, when its copy is old and, at a limited rate, for an unknown key id. If Postgres does not
// answer, the old copy stays in use. A Keys is safe for concurrent use.
type Keys struct {
	store *Store
	ring  *seal.Keyring
	now   func() time.Time // measures ages only

	loading chan struct{} // holds a token while a caller reads the keys
	mu      sync.Mutex    // guards the fields below
	copied  *keyCopy      // the latest copy; nil: none was read
	triedAt time.Time     // the end of the last read
	loadErr error         // of the last read, if Postgres did not answer
}

// keyCopy is a copy of the live keys. It is not changed once it is read.
type keyCopy struct {
	keys        []Key     // newest ActiveAt first
	readAt      time.Time // the beginning of the read, by the process's clock
	databaseNow Millis    // the database's real time at the read
}

// databaseTime returns the database's real time: that of the copy, plus the age of the copy by this
// process's monotonic clock.
func (k *Keys) databaseTime(c *keyCopy) Millis { return c.databaseNow.Add(k.now().Sub(c.readAt)) }

// NewKeys returns a Keys without a copy. It reads nothing.
func NewKeys(store *Store, ring *seal.Keyring) *Keys {
	monotonic := time.Now //nolint:forbidigo // measures the age of a copy only
	return &Keys{store: store, ring: ring, now: monotonic, loading: make(chan struct{}, 1)}
}

// Keyring returns the master keys that open the stored service keys.
func (k *Keys) Keyring() *seal.Keyring { return k.ring }

// Ensure creates missing keys as Store.EnsureKeys does, and reads all keys. Every process that
// serves the API calls Ensure at its start. seal.ErrOpen: the master keys cannot open a stored key.
func (k *Keys) Ensure(ctx context.Context) error {
	if err := k.store.EnsureKeys(ctx, k.ring); err != nil {
		return err
	}
	return k.Refresh(ctx)
}

// Run refreshes the copy at intervals until ctx ends. Without Run, callers refresh an old copy when
// they use it.
func (k *Keys) Run(ctx context.Context) {
	ticker := time.NewTicker(keysRunEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = k.Refresh(ctx) // after an error the old copy stays in use
		}
	}
}

// Current returns the newest active key of a purpose, which makes new tokens. Errors: ErrNoKey if
// there is none; ErrUnavailable if there is no copy and Postgres does not answer.
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

// ByID returns the live key with the id, active or not. Errors: ErrNotFound if there is no such
// key, or if it has retired; the error of the last read if Postgres did not answer it.
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

// find returns the live key with the id from a copy, if the copy has it.
func (k *Keys) find(c *keyCopy, id KeyID) (Key, bool) {
	i := slices.IndexFunc(c.keys, func(key Key) bool { return key.ID == id })
	if i < 0 || c.keys[i].retired(k.databaseTime(c)) {
		return Key{}, false
	}
	return c.keys[i], true
}

// Live returns all live keys of a purpose, newest first. Some may not be active yet.
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

// copyFor returns a copy that is fresh or, if Postgres does not answer or another caller is
// reading, the old copy. It returns an error only if there is no copy.
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

// reloadForMiss reads the keys again because the copy seen lacks one. It does not read if there is
// a newer copy, if the last read was less than keysMissEvery ago, or if another caller is reading.
// It returns the latest copy, and the error of the last read if Postgres did not answer.
func (k *Keys) reloadForMiss(ctx context.Context, seen *keyCopy) (*keyCopy, error) {
	if c, tried := k.latest(); c == seen && k.now().Sub(tried) >= keysMissEvery {
		k.tryRefresh(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copied, k.loadErr
}

// latest returns the latest copy (nil: none), and the time of the last read.
func (k *Keys) latest() (*keyCopy, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.copied, k.triedAt
}

// Refresh reads the keys now, after any read that another caller has begun. Errors: ErrUnavailable;
// seal.ErrOpen; the error of ctx.
func (k *Keys) Refresh(ctx context.Context) error {
	select {
	case k.loading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.loading }()
	return k.load(ctx)
}

// tryRefresh reads the keys unless another caller is reading. It reports whether there is a new
// copy.
func (k *Keys) tryRefresh(ctx context.Context) bool {
	select {
	case k.loading <- struct{}{}:
	default:
		return false
	}
	defer func() { <-k.loading }()
	return k.load(ctx) == nil
}

// load reads the keys and, if that succeeds, replaces the copy. The caller holds the token of
// loading.
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
