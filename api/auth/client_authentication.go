package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwt"

	"partnerbilling/models"
)

// assertionType is the client_assertion_type of private_key_jwt (RFC 7523 §2.2).
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// credentials are a client's attempt to prove who it is; nothing in them has been checked.
type credentials struct {
	clientID  string
	secret    string
	assertion string // instead of the secret
}

// readCredentials finds the one method of client authentication that a request uses. Two at once is invalid_request
// (RFC 6749 §2.3), none is invalid_client.
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

// basicCredentials reads client_secret_basic: both parts are form-encoded before they are joined (RFC 6749 §2.3.1). Ours
// consist of characters that the encoding leaves alone, so a client that forgets it works too.
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
		return credentials{}, invalidRequest("client_id is not the one that authenticates")
	}
	return credentials{clientID: id, secret: secret}, nil
}

func assertionCredentials(form url.Values) (credentials, error) {
	if form.Get("client_assertion_type") != assertionType {
		return credentials{}, invalidRequest("client_assertion_type must be " + assertionType)
	}
	if form.Get("client_assertion") == "" {
		return credentials{}, invalidRequest("client_assertion is missing")
	}
	return credentials{clientID: form.Get("client_id"), assertion: form.Get("client_assertion")}, nil
}

// claimedID is the client that the attempt says it is; "" if it does not say. An assertion says so in its claims, where the form
// need not repeat it (RFC 7523 §2.2).
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

// authenticate is the client that the credentials prove. Failures are counted per client and address: when there are
// too many, further ones are told to wait. A client that proves who it is never waits, so that nobody can lock it out by
// failing in its name; guessing 256 random bits is hopeless at any pace.
func (i *Issuer) authenticate(ctx context.Context, attempt credentials, address string) (models.Client, error) {
	var client models.Client
	var err error
	if attempt.assertion != "" {
		client, err = i.checkAssertion(ctx, attempt)
	} else {
		client, err = i.checkSecret(ctx, attempt)
	}
	var failure *tokenError
	if errors.As(err, &failure) && failure.status == http.StatusUnauthorized {
		if wait := i.failures.count(attempt.claimedID(), address); wait > 0 {
			return models.Client{}, tooManyFailures(wait, err)
		}
	}
	return client, err
}

func (i *Issuer) checkSecret(ctx context.Context, attempt credentials) (models.Client, error) {
	known, err := i.lookUp(ctx, attempt.clientID)
	if err != nil {
		return models.Client{}, err
	}
	switch matches := known.Match(attempt.secret); { // for an unknown client too, which takes the same time
	case !matches:
		return models.Client{}, invalidClient(errors.New("unknown client or wrong secret"))
	case known.Disabled():
		return models.Client{}, invalidClient(errors.New("client is disabled"))
	}
	return known.Client, nil
}

// lookUp finds what is needed to check a client; nothing for one that does not exist.
func (i *Issuer) lookUp(ctx context.Context, clientID string) (models.ClientCredentials, error) {
	var id models.ClientID
	if id.UnmarshalText([]byte(clientID)) != nil {
		return models.ClientCredentials{}, nil //nolint:nilerr // such a client does not exist
	}
	known, err := i.store.ClientCredentials(ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		return models.ClientCredentials{}, nil
	}
	return known, err
}
