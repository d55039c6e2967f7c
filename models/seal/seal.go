// Package seal encrypts secrets at rest under master keys that can be rotated.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// MasterKeySize is the length of a master key in bytes (AES-256).
const MasterKeySize = 32

// The bounds of a key ring's text.
const (
	maxMasterKeys     = 8
	maxMasterKeyIDLen = 16
)

var (
	// ErrMasterKey describes a fault in a key ring's text. It never quotes key material.
	ErrMasterKey = errors.New("seal: master key")
	// ErrOpen reports sealed bytes that cannot be opened: they were changed, moved to another row,
	// or sealed under a master key that the ring lacks.
	ErrOpen = errors.New("seal: sealed value cannot be opened")
)

// Keyring holds the master keys that encrypt secrets at rest (AES-256-GCM). The first key seals
// values, and every key opens the values sealed under it. Nonces are random, which limits one key
// to 2³² values.
type Keyring struct{ keys []masterKey }

type masterKey struct {
	id   string
	aead cipher.AEAD
}

// GenerateMasterKey returns the text of a ring with one random key.
func GenerateMasterKey() string {
	b := make([]byte, 4+MasterKeySize)
	rand.Read(b) // never fails
	return "k" + hex.EncodeToString(b[:4]) + ":" + base64.StdEncoding.EncodeToString(b[4:])
}

// ParseKeyring parses a ring's text: 1 to 8 entries "id:key", separated by commas. The id is 1 to
// 16 characters of a-z and 0-9. The key is 32 bytes in padded standard base64. Ids and keys are
// unique. A fault is ErrMasterKey.
//
// To rotate, add the new entry second and restart every process, so that all can open values sealed
// under it. Then put the new entry first, restart, reseal all rows, drop the old entry, and
// restart.
func ParseKeyring(text string) (*Keyring, error) {
	ring, seen := &Keyring{}, map[string]bool{}
	entries := strings.Split(text, ",")
	if len(entries) > maxMasterKeys {
		return nil, fmt.Errorf("%w: more than %d entries", ErrMasterKey, maxMasterKeys)
	}
	for i, entry := range entries {
		id, secret, err := parseMasterKey(entry)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrMasterKey, i+1, err)
		}
		digest := sha256.Sum256(secret)
		if seen[id] || seen[string(digest[:])] {
			return nil, fmt.Errorf("%w: entry %d repeats an id or a key", ErrMasterKey, i+1)
		}
		seen[id], seen[string(digest[:])] = true, true
		aead, err := newAEAD(secret)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrMasterKey, i+1, err)
		}
		ring.keys = append(ring.keys, masterKey{id, aead})
	}
	return ring, nil
}

func parseMasterKey(entry string) (id string, secret []byte, err error) {
	id, encoded, found := strings.Cut(entry, ":")
	if !found || !isMasterKeyID(id) {
		return "", nil, errors.New("must be id:key, the id 1 to 16 of a-z and 0-9")
	}
	// The decoder skips line breaks; the length check refuses them.
	if len(encoded) == base64.StdEncoding.EncodedLen(MasterKeySize) {
		secret, err = base64.StdEncoding.Strict().DecodeString(encoded)
	}
	if err != nil || len(secret) != MasterKeySize {
		return "", nil, errors.New("the key must be 32 bytes in padded standard base64")
	}
	return id, secret, nil
}

func isMasterKeyID(id string) bool {
	if id == "" || len(id) > maxMasterKeyIDLen {
		return false
	}
	return strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func newAEAD(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts plain under the first key. The result is the length of the key's id in one byte,
// the id, the nonce and the ciphertext. aad identifies the row and the meaning of the bytes: the
// result opens only with the same aad.
func (r *Keyring) Seal(plain, aad []byte) []byte {
	head := r.Head()
	return r.keys[0].aead.Seal(head, nil, plain, additionalData(head, aad))
}

// Head returns the prefix of the values that Seal returns: the length and the id of the first key.
func (r *Keyring) Head() []byte {
	id := r.keys[0].id
	return append([]byte{byte(len(id))}, id...)
}

// Open decrypts a value that Seal made with the same aad under any key of the ring. It returns
// ErrOpen for any other value.
func (r *Keyring) Open(sealed, aad []byte) ([]byte, error) {
	id, ok := sealedUnder(sealed)
	if !ok {
		return nil, fmt.Errorf("%w: malformed", ErrOpen)
	}
	for _, key := range r.keys {
		if key.id != id {
			continue
		}
		head, body := sealed[:1+len(id)], sealed[1+len(id):]
		plain, err := key.aead.Open(nil, nil, body, additionalData(head, aad))
		if err != nil {
			return nil, fmt.Errorf("%w: changed, or not of this row", ErrOpen)
		}
		return plain, nil
	}
	return nil, fmt.Errorf("%w: the ring has no master key %q", ErrOpen, id)
}

// Reseal opens a sealed value and seals it under the first key. A value that is under that key
// already is returned as it is, with changed false. Errors are those of Open.
func (r *Keyring) Reseal(sealed, aad []byte) (resealed []byte, changed bool, err error) {
	plain, err := r.Open(sealed, aad)
	if err != nil {
		return nil, false, err
	}
	if id, _ := sealedUnder(sealed); id == r.keys[0].id {
		return sealed, false, nil
	}
	return r.Seal(plain, aad), true, nil
}

// sealedUnder returns the id of the master key of a sealed value, and false if the value is
// malformed.
func sealedUnder(sealed []byte) (id string, ok bool) {
	if len(sealed) == 0 || len(sealed) < 1+int(sealed[0]) {
		return "", false
	}
	id = string(sealed[1 : 1+int(sealed[0])])
	return id, isMasterKeyID(id)
}

// additionalData returns the data that Seal authenticates with a ciphertext: head and the caller's
// aad. head contains its own length, so that different pairs never produce the same bytes.
func additionalData(head, aad []byte) []byte {
	return append(append(make([]byte, 0, len(head)+len(aad)), head...), aad...)
}

// String keeps key material out of logs.
func (r *Keyring) String() string { return fmt.Sprintf("seal.Keyring(%d keys)", len(r.keys)) }

// GoString keeps key material out of logs.
func (r *Keyring) GoString() string { return r.String() }
