package auth

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"partnerbilling/models"
)

// keySource provides the public keys of an issuer.
type keySource interface {
	// publicKey returns the key with the id. It returns ErrInvalidToken if there is none that suits
	// the algorithm, and models.ErrUnavailable if the keys are unavailable.
	publicKey(ctx context.Context, keyID string, algorithm jwa.SignatureAlgorithm) (any, error)
}

// ownKeys is the keySource of the service's own signing keys.
type ownKeys struct{ keys *models.Keys }

func (o ownKeys) publicKey(ctx context.Context, keyID string, algorithm jwa.SignatureAlgorithm) (any, error) {
	if algorithm != jwa.EdDSA() {
		return nil, invalid("algorithm %q", algorithm)
	}
	var id models.KeyID
	if id.UnmarshalText([]byte(keyID)) != nil {
		return nil, invalid("unknown key id")
	}
	key, err := o.keys.ByID(ctx, id)
	if errors.Is(err, models.ErrNotFound) || err == nil && key.Purpose != models.KeyAccessToken {
		return nil, invalid("unknown key id")
	}
	if err != nil {
		return nil, err
	}
	return publicKeyOf(key), nil
}

// publicKeyOf returns the public key of a signing key, whose secret is an Ed25519 seed.
func publicKeyOf(key models.Key) ed25519.PublicKey {
	public, _ := ed25519.NewKeyFromSeed(key.Secret).Public().(ed25519.PublicKey)
	return public
}
