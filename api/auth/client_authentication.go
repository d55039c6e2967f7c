package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwt"

	"partnerbilling/models"
)

// assertionType is the client_assertion_type of private_key_jwt (RFC 7523 §2.2).
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// credentials are the unverified credentials of a client at the token endpoint.
type credentials struct {
	clientID  string
	secret    string
	assertion string // instead of the secret
}

// readCredentials reads a client's credentials from the Authorization header or the form. It
// returns invalid_request for more than one method (RFC 6749 §2.3), and invalid_client for none.
func readCredentials(authorization string, form url.Values) (credentials, error) {
	methods := 0
	for _, used := range []bool{
		authorization != "",
		form.Get("client_secret") != "",
		form.Get("client_assertion") != "" || form.Get("client_assertion_type") != "",
	} {
		if used {
			methods++
		}
	}
	switch {
	case methods > 1:
		return credentials{}, invalidRequest("more than one method of client authentication")
	case authorization != "":
		return basicCredentials(authorization, form.Get("client_id"))
	case form.Get("client_secret") != "":
		if form.Get("client_id") == "" {
			return credentials{}, invalidRequest("client_id is missing")
		}
		return credentials{clientID: form.Get("client_id"), secret: form.Get("client_secret")}, nil
	case methods == 1:
		return assertionCredentials(form)
	default:
		return credentials{}, invalidClient(errors.New("no client authentication"))
	}
}

// basicCredentials reads client_secret_basic, whose parts are form-encoded before they are joined
// (RFC 6749 §2.3.1). Clients that do not encode them work too, because the service's ids and
// secrets contain no characters that need it. clientID is that of the form, "" for none.
func basicCredentials(authorization, clientID string) (credentials, error) {
	scheme, encoded, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return credentials{}, invalidClient(errors.New("authorization scheme is not Basic"))
	}
	malformed := invalidClient(errors.New("malformed Basic credentials"))
	joined, err := base64.StdEncoding.DecodeString(strings.Trim(encoded, " "))
	if err != nil {
		return credentials{}, malformed
	}
	id, secret, found := strings.Cut(string(joined), ":")
	id, idErr := url.QueryUnescape(id)
	secret, secretErr := url.QueryUnescape(secret)
	if !found || id == "" || secret == "" || idErr != nil || secretErr != nil {
		return credentials{}, malformed
	}
	if clientID != "" && clientID != id {
		return credentials{}, invalidRequest("client_id differs from the authenticated client")
	}
	return credentials{clientID: id, secret: secret}, nil
}

// assertionCredentials reads private_key_jwt from the form.
func assertionCredentials(form url.Values) (credentials, error) {
	if form.Get("client_assertion_type") != assertionType {
		return credentials{}, invalidRequest("client_assertion_type must be " + assertionType)
	}
	if form.Get("client_assertion") == "" {
		return credentials{}, invalidRequest("client_assertion is missing")
	}
	return credentials{clientID: form.Get("client_id"), assertion: form.Get("client_assertion")}, nil
}

// claimedID returns the client that the credentials claim, or "". The form need not name the client
// of an assertion (RFC 7523 §2.2).
func (c credentials) claimedID() string {
	if c.clientID != "" || c.assertion == "" {
		return c.clientID
	}
	assertion, err := parseSigned(c.assertion)
	if err != nil {
		return ""
	}
	return assertion.text(jwt.SubjectKey)
}

// authenticate verifies credentials and returns their client. It counts failures per client and
// address. After too many, it answers further failures with 429. Valid credentials always succeed,
// so that failures in a client's name cannot lock it out. Guessing a secret of 256 random bits
// remains infeasible.
func (i *Issuer) authenticate(ctx context.Context, attempt credentials, address netip.Addr) (authenticated, error) {
	var client authenticated
	var err error
	if attempt.assertion != "" {
		client, err = i.checkAssertion(ctx, attempt, address)
	} else {
		client, err = i.checkSecret(ctx, attempt, address)
	}
	var failure *tokenError
	if errors.As(err, &failure) && failure.status == http.StatusUnauthorized {
		i.failed.Inc()
		if wait := i.failures.count(attempt.claimedID(), addressText(address)); wait > 0 {
			return authenticated{}, tooManyFailures(wait, err)
		}
	}
	if err != nil {
		return authenticated{}, err
	}
	i.recordUse(ctx, &client)
	return client, nil
}

// authenticated is an authenticated client, with the fingerprint of the secret or key that it used.
type authenticated struct {
	models.ClientCredentials
	fingerprint string
}

// addressText returns the text of an address, "" for an unknown one.
func addressText(address netip.Addr) string {
	if !address.IsValid() {
		return ""
	}
	return address.String()
}

// recordUse records the use of a credential, at most once a minute. A failure is logged, and does
// not prevent the token.
func (i *Issuer) recordUse(ctx context.Context, client *authenticated) {
	if client.UsedRecently(client.fingerprint) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordUseTimeout)
	defer cancel()
	if err := i.store.RecordCredentialUse(ctx, client.ID, client.fingerprint); err != nil {
		i.log.WarnContext(ctx, "the use of a credential was not recorded", "clientId", client.ID, "error", err)
	}
}

// recordUseTimeout bounds the time by which recordUse may delay a token.
const recordUseTimeout = 250 * time.Millisecond

// checkMayAct returns an error if the client is disabled or may not call from the address.
func checkMayAct(client *models.Client, address netip.Addr) error {
	switch {
	case client.Disabled():
		return fmt.Errorf("client %s is disabled", client.ID)
	case !client.Allows(address):
		return fmt.Errorf("client %s may not call from %s", client.ID, addressText(address))
	}
	return nil
}

// checkSecret verifies a client's secret, sent from the address, and returns the client.
func (i *Issuer) checkSecret(ctx context.Context, attempt credentials, address netip.Addr) (authenticated, error) {
	known, err := i.lookUp(ctx, attempt.clientID)
	if err != nil {
		return authenticated{}, err
	}
	if !known.Match(attempt.secret) { // unknown clients take the same time
		return authenticated{}, invalidClient(mismatch(&known.Client))
	}
	if err := checkMayAct(&known.Client, address); err != nil {
		return authenticated{}, invalidClient(err)
	}
	return authenticated{known, models.FingerprintOf(attempt.secret)}, nil
}

// mismatch returns the reason why a secret was refused, for the log. The client gets the same
// answer for both reasons.
func mismatch(known *models.Client) error {
	if known.ID.IsZero() {
		return errors.New("unknown client")
	}
	return fmt.Errorf("wrong secret of client %s", known.ID)
}

// lookUp returns the credentials of a client. They are empty for an unknown client.
func (i *Issuer) lookUp(ctx context.Context, clientID string) (models.ClientCredentials, error) {
	var id models.ClientID
	if id.UnmarshalText([]byte(clientID)) != nil {
		return models.ClientCredentials{}, nil //nolint:nilerr // no client has such an id
	}
	known, err := i.store.ClientCredentials(ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		return models.ClientCredentials{}, nil
	}
	return known, err
}
