package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

// signed is a JWT in compact form. Its contents are untrusted until verify succeeds.
type signed struct {
	raw       []byte
	algorithm jwa.SignatureAlgorithm
	keyID     string // "" if the header has none
	typ       string // lower case, without "application/"
	claims    jwt.Token
}

// asymmetric lists the accepted signature algorithms. It excludes "none". It also excludes HMAC,
// which would accept a public key as the secret.
var asymmetric = []jwa.SignatureAlgorithm{jwa.EdDSA(), jwa.ES256(), jwa.RS256(), jwa.PS256()}

// algorithmNames returns the names of the asymmetric algorithms.
func algorithmNames() []string {
	names := make([]string, len(asymmetric))
	for i, a := range asymmetric {
		names[i] = a.String()
	}
	return names
}

// parseSigned parses a compact JWS whose payload is a JSON object. Its errors do not quote raw.
func parseSigned(raw string) (signed, error) {
	if len(raw) > maxTokenSize || strings.Count(raw, ".") != 2 {
		return signed{}, errors.New("not a compact JWS")
	}
	message, err := jws.Parse([]byte(raw), jws.WithCompact())
	if err != nil || len(message.Signatures()) != 1 {
		return signed{}, errors.New("not a compact JWS")
	}
	header := message.Signatures()[0].ProtectedHeaders()
	if header.Has(jws.CriticalKey) || header.Has("b64") {
		return signed{}, errors.New("critical extensions are not supported")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(message.Payload(), " \t\r\n"), []byte("{")) {
		return signed{}, errors.New("no claims") // a nested token would stay unverified
	}
	claims, err := jwt.ParseInsecure(message.Payload())
	if err != nil {
		return signed{}, errors.New("malformed claims")
	}
	s := signed{raw: []byte(raw), claims: claims}
	s.algorithm, _ = header.Algorithm()
	s.keyID, _ = header.KeyID()
	typ, _ := header.Type()
	s.typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	return s, nil
}

// verify checks the signature, and the claims against the rules. key must be a public key for the
// token's algorithm.
func (s *signed) verify(key any, rules ...jwt.ValidateOption) error {
	if _, err := jws.Verify(s.raw, jws.WithKey(s.algorithm, key), jws.WithCompact()); err != nil {
		return errors.New("wrong signature")
	}
	return jwt.Validate(s.claims, rules...)
}

// text returns a string claim, or "" if it is absent or not a string.
func (s *signed) text(claim string) string {
	var value string
	if err := s.claims.Get(claim, &value); err != nil {
		return ""
	}
	return value
}

// publicKeys parses a JSON Web Key Set. It refuses secret, private, weak and unsupported keys.
func publicKeys(raw []byte) (jwk.Set, error) {
	set, err := jwk.Parse(raw)
	if err != nil {
		return nil, errors.New("not a JSON Web Key Set")
	}
	for i := range set.Len() {
		key, _ := set.Key(i)
		if private, err := jwk.IsPrivateKey(key); err != nil || private {
			return nil, fmt.Errorf("keys[%d] is not a public key", i)
		}
		if !usable(key) {
			return nil, fmt.Errorf("keys[%d] must be an Ed25519, P-256 or RSA key (2048 to 8192 bits)", i)
		}
	}
	return set, nil
}

// usable reports whether a key is Ed25519, P-256, or RSA of 2048 to 8192 bits.
func usable(key jwk.Key) bool {
	var raw any
	if jwk.Export(key, &raw) != nil {
		return false
	}
	switch public := raw.(type) {
	case ed25519.PublicKey:
		return true
	case *ecdsa.PublicKey:
		return public.Curve == elliptic.P256()
	case *rsa.PublicKey:
		return public.N.BitLen() >= 2048 && public.N.BitLen() <= 8192
	default:
		return false
	}
}

// fits reports whether a key can verify signatures of the algorithm. Such a key has the right type,
// and declares no other use or algorithm.
func fits(key jwk.Key, algorithm jwa.SignatureAlgorithm) bool {
	if use, ok := key.KeyUsage(); ok && use != "sig" {
		return false
	}
	if declared, ok := key.Algorithm(); ok && declared.String() != algorithm.String() {
		return false
	}
	switch algorithm {
	case jwa.EdDSA():
		return key.KeyType() == jwa.OKP()
	case jwa.ES256():
		return key.KeyType() == jwa.EC()
	case jwa.RS256(), jwa.PS256():
		return key.KeyType() == jwa.RSA()
	default:
		return false
	}
}
