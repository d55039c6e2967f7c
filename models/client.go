package models

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Scope is a permission that an access token carries.
type Scope string

// The scopes. A partner's client may hold PartnerScopes. A client of the customer app's backend
// belongs to no organisation, and may hold CustomerAppScopes. No scope is in both lists.
const (
	ScopeCustomersRead       Scope = "billing:customers:read"
	ScopeCustomersWrite      Scope = "billing:customers:write"
	ScopeBatchesRead         Scope = "billing:batches:read"
	ScopeBatchesWrite        Scope = "billing:batches:write"
	ScopeMovementsRead       Scope = "billing:movements:read"
	ScopePaymentIntentsRead  Scope = "checkout:payment-intents:read"
	ScopePaymentIntentsWrite Scope = "checkout:payment-intents:write"
	ScopeWebhooksRead        Scope = "checkout:webhooks:read"
	ScopeWebhooksWrite       Scope = "checkout:webhooks:write"
	ScopeSignupsWrite        Scope = "customer-app:signups:write"
	ScopePaymentsWrite       Scope = "customer-app:payments:write"
)

// PartnerScopes are the scopes that a partner's client may hold.
var PartnerScopes = []Scope{
	ScopeCustomersRead, ScopeCustomersWrite, ScopeBatchesRead, ScopeBatchesWrite, ScopeMovementsRead,
	ScopePaymentIntentsRead, ScopePaymentIntentsWrite, ScopeWebhooksRead, ScopeWebhooksWrite,
}

// CustomerAppScopes are the scopes that a client of the customer app's backend may hold.
var CustomerAppScopes = []Scope{ScopeSignupsWrite, ScopePaymentsWrite}

var (
	// ErrScopes says that a client cannot hold the requested scopes.
	ErrScopes = errors.New("models: scopes that this client cannot hold")
	// ErrAddresses says that a list of allowed addresses is invalid.
	ErrAddresses = errors.New(
		"models: addresses must be distinct CIDR prefixes without address bits beyond their length")
	// ErrTooManySecrets says that a client has MaxClientSecrets live secrets already.
	ErrTooManySecrets = errors.New("models: the client has two secrets already")
	// ErrAssertionUsed says that a client assertion's jti was used before.
	ErrAssertionUsed = errors.New("models: client assertion used before")
)

// MaxClientSecrets is the maximum number of live secrets of a client. Two allow a rotation without
// an outage.
const MaxClientSecrets = 2

// Client is an API client: a program of a partner, or the customer app's backend. It may obtain
// access tokens for its scopes.
type Client struct {
	ID             ClientID
	OrganisationID OrganisationID // zero: the customer app's backend
	Name           string         // for operators
	Scopes         []Scope
	JWKS           json.RawMessage // public keys for private_key_jwt; nil: none
	// AllowedAddresses are the addresses from which the client may call; none: any address.
	AllowedAddresses []netip.Prefix
	CreatedAt        Millis // service time
	DisabledAt       Millis // service time; 0: not disabled
}

// Allows reports whether the client may call from an address.
func (c Client) Allows(address netip.Addr) bool {
	return len(c.AllowedAddresses) == 0 || slices.ContainsFunc(c.AllowedAddresses, func(p netip.Prefix) bool {
		return p.Contains(address.Unmap().WithZone(""))
	})
}

// maxAllowedAddresses is the maximum number of prefixes of one client. Each request compares its
// address with all of them.
const maxAllowedAddresses = 64

// checkAddresses returns ErrAddresses for more than maxAllowedAddresses prefixes, a repeated
// prefix, or a prefix that is not canonical. A canonical prefix has no address bits beyond its
// length, and is not an IPv4 address inside IPv6.
func checkAddresses(prefixes []netip.Prefix) error {
	if len(prefixes) > maxAllowedAddresses {
		return fmt.Errorf("%w: more than %d", ErrAddresses, maxAllowedAddresses)
	}
	for i, p := range prefixes {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || slices.Contains(prefixes[:i], p) {
			return fmt.Errorf("%w: %s", ErrAddresses, p)
		}
	}
	return nil
}

// Disabled reports whether the client is disabled. It may then neither get nor use tokens.
func (c Client) Disabled() bool { return c.DisabledAt != 0 }

// checkScopes returns ErrScopes for an empty list, a repeated scope, or a scope that the client
// cannot hold. A client of the zero organisation belongs to the customer app's backend.
func checkScopes(organisation OrganisationID, scopes []Scope) error {
	allowed := PartnerScopes
	if organisation.IsZero() {
		allowed = CustomerAppScopes
	}
	if len(scopes) == 0 {
		return fmt.Errorf("%w: none", ErrScopes)
	}
	for i, scope := range scopes {
		if !slices.Contains(allowed, scope) || slices.Contains(scopes[:i], scope) {
			return fmt.Errorf("%w: %q", ErrScopes, string(scope))
		}
	}
	return nil
}

// clientSecretPrefix lets secret scanners recognise a leaked secret.
const clientSecretPrefix = "svcs_"

// newClientSecret makes the text of a secret: the prefix and 32 random bytes in unpadded URL-safe
// base64.
func newClientSecret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return clientSecretPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// hashClientSecret returns the stored form of a secret. A secret has 256 random bits and needs no
// key stretching.
func hashClientSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// ClientSecret identifies a live secret without revealing it.
type ClientSecret struct {
	Fingerprint string // the first 16 hex digits of the secret's hash
	CreatedAt   Millis // service time
}

// secretFingerprint returns the fingerprint of a secret with this hash.
func secretFingerprint(hash []byte) string { return hex.EncodeToString(hash[:8]) }

// ClientCredentials is a client with the data to verify its secrets.
type ClientCredentials struct {
	Client
	secretHashes [][]byte // SHA-256 of the live secrets
	recentUses   []string // fingerprints of the credentials with a recorded use in the last minute
}

// Fingerprints returns the fingerprints of the client's live secrets.
func (c *ClientCredentials) Fingerprints() []string {
	all := make([]string, len(c.secretHashes))
	for i, hash := range c.secretHashes {
		all[i] = secretFingerprint(hash)
	}
	return all
}

// UsedRecently reports whether the credential with the fingerprint has a recorded use in the minute
// before it was read.
func (c *ClientCredentials) UsedRecently(fingerprint string) bool {
	return slices.Contains(c.recentUses, fingerprint)
}

// FingerprintOf returns the fingerprint of a secret.
func FingerprintOf(secret string) string { return secretFingerprint(hashClientSecret(secret)) }

// Match reports whether secret is one of the client's live secrets. For the zero ClientCredentials,
// which has no secret, Match takes the same time: timing does not reveal whether a client exists.
func (c *ClientCredentials) Match(secret string) bool {
	hash := hashClientSecret(secret)
	match := 0
	for i := range MaxClientSecrets {
		stored, counts := make([]byte, sha256.Size), 0
		if i < len(c.secretHashes) {
			stored, counts = c.secretHashes[i], 1
		}
		match |= subtle.ConstantTimeCompare(hash, stored) & counts
	}
	return match == 1
}
