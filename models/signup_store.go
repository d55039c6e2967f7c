package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

var (
	linkPartySQL = postgres.SQL(`
UPDATE customer_links l SET state = 'linked', linked_at = svc_now(), party = :party
WHERE id = :id AND state = 'invited' AND expires_at > svc_now()
RETURNING webhook_wanted((SELECT s.organisation_id FROM sites s WHERE s.id = l.site_id), l.site_id, 'customerLinked')`)
	keyOfLinkSQL  = postgres.SQL(`SELECT key_id FROM customer_links WHERE id = :id`)
	signupByIDSQL = postgres.SQL(`
SELECT svc_now() AS now, l.id AS link_id, o.name AS organisation_name,
    coalesce(o.colour, '') AS organisation_colour, s.name AS site_name, l.state, l.invited_at, l.expires_at,
    l.linked_at, l.party
FROM customer_links l JOIN sites s ON s.id = l.site_id JOIN organisations o ON o.id = s.organisation_id
WHERE l.id = :id`)
)

// Signup returns the link of a sign-up token as the customer sees it, and changes nothing.
// ErrNotFound: the token is invalid for any reason.
func (s *Store) Signup(ctx context.Context, keys *Keys, token string) (signup Signup, err error) {
	id, err := s.openSignupToken(ctx, keys, token)
	if err == nil {
		signup, _, err = signupByID(ctx, s.pg, id)
	}
	if err != nil {
		return Signup{}, fmt.Errorf("models: sign-up: %w", err)
	}
	return signup, nil
}

// CompleteSignup links the customer of party to the Site of a sign-up token: the invited link
// becomes linked. A repeated call for the same customer gets the same answer. Errors: ErrNotFound
// for an invalid token; ErrLinkExpired; ErrLinkRevoked; ErrLinkTaken for another customer.
func (s *Store) CompleteSignup(ctx context.Context, keys *Keys, token string, party Party) (Signup, error) {
	id, err := s.openSignupToken(ctx, keys, token)
	if err != nil {
		return Signup{}, fmt.Errorf("models: complete sign-up: %w", err)
	}
	return s.CompleteLink(ctx, id, party)
}

// CompleteLink links the customer as CompleteSignup does, by the id of the link instead of a token.
func (s *Store) CompleteLink(ctx context.Context, id LinkID, party Party) (signup Signup, err error) {
	sealed, err := sealParty(s, party, id)
	if err != nil {
		return Signup{}, fmt.Errorf("models: complete sign-up: %w", err)
	}
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		if err := linkParty(ctx, tx, id, sealed); err != nil {
			return err
		}
		var found []byte
		if signup, found, err = signupByID(ctx, tx, id); err != nil {
			return err
		}
		linked, err := openParty(s, found, id)
		if err != nil {
			return err
		}
		return whyNotLinked(signup.State, linked, party)
	})
	if err != nil {
		return Signup{}, fmt.Errorf("models: complete sign-up: %w", err)
	}
	return signup, nil
}

// linkParty links the customer if the link is invited and not past expiry, and announces that to an
// endpoint that subscribes to it. One conditional update decides between concurrent sign-ups,
// revocation and expiry.
func linkParty(ctx context.Context, tx postgres.Tx, id LinkID, sealed []byte) error {
	var wanted bool
	err := tx.Get(ctx, linkPartySQL, postgres.Args{"id": id, "party": sealed}, &wanted)
	if err != nil || !wanted {
		return ignore(err, sql.ErrNoRows)
	}
	return announceLinks(ctx, tx, id)
}

// whyNotLinked returns nil if the link is linked to the customer of party, and otherwise the error
// that says why not. The agreements may differ: the agreement of the first sign-up stays.
func whyNotLinked(state LinkState, linked, party Party) error {
	switch {
	case state == LinkRevoked:
		return ErrLinkRevoked
	case state != LinkLinked:
		return ErrLinkExpired
	case linked.CustomerID != party.CustomerID:
		return ErrLinkTaken
	}
	return nil
}

// openSignupToken returns the link of a token; ErrNotFound if the token is invalid.
func (s *Store) openSignupToken(ctx context.Context, keys *Keys, token string) (LinkID, error) {
	id, mac, err := parseSignupToken(token)
	if err != nil {
		return LinkID{}, notFoundError("sign-up")
	}
	var key KeyID
	err = s.pg.Get(ctx, keyOfLinkSQL, postgres.Args{"id": id}, &key)
	if errors.Is(err, sql.ErrNoRows) {
		return LinkID{}, notFoundError("sign-up")
	}
	if err != nil {
		return LinkID{}, err
	}
	return id, keys.verifySignupToken(ctx, id, key, mac)
}

// signupByID reads a link as the customer sees it, and its sealed party.
func signupByID(ctx context.Context, on postgres.Session, id LinkID) (Signup, []byte, error) {
	var row struct {
		Signup
		Party []byte // sealed
		Now   Millis
	}
	if err := on.Get(ctx, signupByIDSQL, postgres.Args{"id": id}, &row); err != nil {
		return Signup{}, nil, notFound(err, "sign-up")
	}
	row.State = row.State.At(row.ExpiresAt, row.Now)
	return row.Signup, row.Party, nil
}
