package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// Signup returns what the holder of a sign-up token may see, without changing anything.
// ErrNotFound: the token is invalid for any reason.
func (s *Store) Signup(ctx context.Context, keys *Keys, token string) (signup Signup, err error) {
	id, err := s.openSignupToken(ctx, keys, token)
	if err == nil {
		err = s.pg.Do(ctx, func() error {
			signup, _, err = signupByID(ctx, s.db.DB, id)
			return err
		})
	}
	if err != nil {
		return Signup{}, fmt.Errorf("models: sign-up: %w", err)
	}
	return signup, nil
}

// CompleteSignup links the customer: an invited link becomes linked. A repeated call for the same
// customer gets the same answer. Errors: ErrNotFound for an invalid token; ErrLinkExpired;
// ErrLinkRevoked; ErrLinkTaken for another customer.
func (s *Store) CompleteSignup(ctx context.Context, keys *Keys, token string, party Party) (Signup, error) {
	id, err := s.openSignupToken(ctx, keys, token)
	if err != nil {
		return Signup{}, fmt.Errorf("models: complete sign-up: %w", err)
	}
	return s.CompleteLink(ctx, id, party)
}

// CompleteLink is CompleteSignup by the link's id.
func (s *Store) CompleteLink(ctx context.Context, id LinkID, party Party) (signup Signup, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		if err := linkParty(ctx, tx, id, party); err != nil {
			return err
		}
		var linked Party
		if signup, linked, err = signupByID(ctx, tx.Tx.Tx, id); err != nil {
			return err
		}
		return whyNotLinked(signup.State, linked, party)
	})
	if err != nil {
		return Signup{}, fmt.Errorf("models: complete sign-up: %w", err)
	}
	return signup, nil
}

// linkParty is the one conditional update that decides a sign-up, also at the moment of expiry.
func linkParty(ctx context.Context, tx postgres.Tx, id LinkID, party Party) error {
	var wanted bool
	err := tx.Tx.Tx.QueryRowContext(ctx, `
		UPDATE customer_links l SET state = 'linked', linked_at = svc_now(), customer_id = $2, agreement_id = $3
		WHERE id = $1 AND state = 'invited' AND expires_at > svc_now()
		RETURNING webhook_wanted((SELECT s.organisation_id FROM sites s WHERE s.id = l.site_id), l.site_id, 'customerLinked')`,
		id, party.CustomerID, party.AgreementID).Scan(&wanted)
	if err != nil || !wanted {
		return ignore(err, sql.ErrNoRows)
	}
	return announceLinks(ctx, tx, id)
}

// whyNotLinked explains a link that linkParty did not change: nil if it is linked to the same
// customer. The first agreement stays.
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
	err = s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `SELECT key_id FROM customer_links WHERE id = $1`, id).Scan(&key)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return LinkID{}, notFoundError("sign-up")
	}
	if err != nil {
		return LinkID{}, err
	}
	return id, keys.verifySignupToken(ctx, id, key, mac)
}

func signupByID(ctx context.Context, db querier, id LinkID) (signup Signup, linked Party, err error) {
	signup.LinkID = id
	var now Millis
	err = db.QueryRowContext(ctx, `
		SELECT svc_now(), o.name, s.name, l.state, l.invited_at, l.expires_at, coalesce(l.linked_at, 0),
			coalesce(l.customer_id, ''), coalesce(l.agreement_id, '')
		FROM customer_links l JOIN sites s ON s.id = l.site_id JOIN organisations o ON o.id = s.organisation_id
		WHERE l.id = $1`, id).Scan(&now, &signup.OrganisationName, &signup.SiteName, &signup.State, &signup.InvitedAt,
		&signup.ExpiresAt, &signup.LinkedAt, &linked.CustomerID, &linked.AgreementID)
	signup.State = signup.State.At(signup.ExpiresAt, now)
	return signup, linked, notFound(err, "sign-up")
}
