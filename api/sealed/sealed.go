// Package sealed encrypts short values into texts that clients carry for the service, such as
// pagination cursors and sessions. The service does not store the texts.
package sealed

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"partnerbilling/models"
)

// ErrInvalid reports a text that is malformed, changed or too long, or that was sealed with another
// label or scope or under a retired key.
var ErrInvalid = errors.New("sealed: not a text of this service with this label and scope")

// Purpose is the purpose of the service keys from which a Box derives its keys. The console derives
// the keys of its webhook receiver from the same service keys.
const Purpose = models.KeySealedText

// Encoding is the canonical base64url encoding of texts. Its decoder skips line breaks: callers
// must reject them.
var Encoding = base64.RawURLEncoding.Strict()

// A text is base64url(key id ‖ salt ‖ nonce ‖ ciphertext ‖ tag). The salt derives a key for each
// text, so that a random nonce repeats under one key with negligible probability only.
const (
	saltSize  = 16
	nonceSize = 12
	headSize  = len(models.KeyID{}) + saltSize + nonceSize
)

// Box seals and opens texts of one kind. It is safe for concurrent use.
type Box struct {
	Keys  *models.Keys
	Label string // separates the keys of different kinds of text
	// MaxSize is the maximum length of a text in bytes. Open rejects longer ones; Seal does not
	// check.
	MaxSize int
}

// Seal encrypts and authenticates plain. scope, which may be nil, is authenticated but is not part
// of the text: Open needs the same scope. An error means that the service's keys are unavailable.
func (b Box) Seal(ctx context.Context, plain, scope []byte) (string, error) {
	key, err := b.Keys.Current(ctx, Purpose)
	if err != nil {
		return "", fmt.Errorf("sealed: %s: %w", b.Label, err)
	}
	return b.seal(key, plain, scope)
}

func (b Box) seal(key models.Key, plain, scope []byte) (string, error) {
	head := make([]byte, headSize)
	copy(head, key.ID[:])
	rand.Read(head[len(key.ID):]) // never fails
	aead, err := b.cipher(key, head)
	if err != nil {
		return "", fmt.Errorf("sealed: %s: %w", b.Label, err)
	}
	return Encoding.EncodeToString(aead.Seal(head, head[headSize-nonceSize:], plain, scope)), nil
}

// Open decrypts a text. It returns ErrInvalid unless Seal made the text with this label and scope.
// Any other error means that the service's keys are unavailable.
func (b Box) Open(ctx context.Context, text string, scope []byte) ([]byte, error) {
	raw, err := b.parse(text)
	if err != nil {
		return nil, err
	}
	key, err := b.Keys.ByID(ctx, models.KeyID(raw[:len(models.KeyID{})]))
	if errors.Is(err, models.ErrNotFound) || err == nil && key.Purpose != Purpose {
		return nil, ErrInvalid
	}
	if err != nil {
		return nil, fmt.Errorf("sealed: %s: %w", b.Label, err)
	}
	return b.open(key, raw, scope)
}

// parse decodes a text, which is not authenticated yet.
func (b Box) parse(text string) ([]byte, error) {
	if len(text) > b.MaxSize || strings.ContainsAny(text, "\r\n") { // the decoder would skip line breaks
		return nil, ErrInvalid
	}
	raw, err := Encoding.DecodeString(text)
	if err != nil || len(raw) < headSize {
		return nil, ErrInvalid
	}
	return raw, nil
}

func (b Box) open(key models.Key, raw, scope []byte) ([]byte, error) {
	head, ciphertext := raw[:headSize], raw[headSize:]
	aead, err := b.cipher(key, head)
	if err != nil {
		return nil, fmt.Errorf("sealed: %s: %w", b.Label, err)
	}
	plain, err := aead.Open(nil, head[headSize-nonceSize:], ciphertext, scope)
	if err != nil {
		return nil, ErrInvalid
	}
	return plain, nil
}

// cipher returns the cipher (AES-256-GCM) of the text that begins with head: key id, salt and
// nonce.
func (b Box) cipher(key models.Key, head []byte) (cipher.AEAD, error) {
	secret, err := hkdf.Key(sha256.New, key.Secret, head[len(key.ID):headSize-nonceSize], b.Label, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
