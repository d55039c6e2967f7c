package models

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// A sign-up token is base64url(link id ‖ MAC). The MAC depends on the service key that the link
// names. The contents of the database alone thus make no token, and the service can compute the
// token of a link again at any time.
const (
	signupMACSize   = 20 // 160 bits, too many to guess
	signupTokenSize = len(LinkID{}) + signupMACSize
)

// signupEncoding refuses trailing bits, so that each token has one spelling.
var signupEncoding = base64.RawURLEncoding.Strict()

// SignupToken returns the token in the sign-up URL of a link, under the service key that the link
// names. ErrNotFound: the key has retired, and the invitation can no longer be opened.
func (k *Keys) SignupToken(ctx context.Context, link LinkID, keyID KeyID) (string, error) {
	key, err := k.ByID(ctx, keyID)
	if err != nil {
		return "", fmt.Errorf("models: sign-up token: %w", err)
	}
	return signupEncoding.EncodeToString(append(link[:], signupMAC(key, link)...)), nil
}

// verifySignupToken returns ErrNotFound unless mac is the MAC of the link under the key.
func (k *Keys) verifySignupToken(ctx context.Context, link LinkID, keyID KeyID, mac []byte) error {
	key, err := k.ByID(ctx, keyID)
	if err != nil {
		return err
	}
	if key.Purpose != KeySignupLink || !hmac.Equal(mac, signupMAC(key, link)) {
		return notFoundError("sign-up")
	}
	return nil
}

// signupMAC returns the HMAC-SHA-256 of the link's id, cut to signupMACSize bytes.
func signupMAC(key Key, link LinkID) []byte {
	mac := hmac.New(sha256.New, key.Secret)
	mac.Write([]byte("signup\x00"))
	mac.Write(link[:])
	return mac.Sum(nil)[:signupMACSize]
}

// errSignupToken says that a text does not have the form of a token.
var errSignupToken = errors.New("models: not a sign-up token")

// parseSignupToken splits a token into link and MAC, without verifying the MAC.
func parseSignupToken(token string) (link LinkID, mac []byte, err error) {
	if len(token) != signupEncoding.EncodedLen(signupTokenSize) {
		return LinkID{}, nil, errSignupToken
	}
	raw, err := signupEncoding.DecodeString(token)
	if err != nil || len(raw) != signupTokenSize { // the decoder skips line ends
		return LinkID{}, nil, errSignupToken
	}
	copy(link[:], raw)
	return link, raw[len(link):], nil
}
