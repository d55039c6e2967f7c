package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// linkColumns are the columns that scanLink reads, in its order.
const linkColumns = `l.site_id, l.id, l.customer_reference, l.state, l.invited_at, l.expires_at,
	coalesce(l.linked_at, 0), coalesce(l.revoked_at, 0), l.key_id, l.trace_id`

func (l *Link) fields() []any {
	return []any{&l.SiteID, &l.ID, &l.CustomerReference, &l.State, &l.InvitedAt, &l.ExpiresAt,
		&l.LinkedAt, &l.RevokedAt, &l.KeyID, &l.TraceID}
}

// createLink expires the reference's overdue invitation and inserts a new link, at one reading of
// the clock. It inserts nothing if the reference is active or the expiry is not between $8 and $9
// from now. A link is later than every earlier link of its reference, even if the clock stands
// still or steps back. The last column is the expired link, if the endpoint subscribes to that
// event.
const createLink = `
WITH clock AS MATERIALIZED (SELECT svc_now() AS now),
over AS (
	UPDATE customer_links SET state = 'expired'
	WHERE site_id = $1 AND customer_reference = $2 AND state = 'invited' AND expires_at <= (SELECT now FROM clock)
	RETURNING id
),
start AS (
	SELECT greatest((SELECT now FROM clock), (
		SELECT max(invited_at) + 1 FROM customer_links WHERE site_id = $1 AND customer_reference = $2)) AS at
),
made AS (
	INSERT INTO customer_links AS l (site_id, id, customer_reference, invited_at, expires_at, key_id, trace_id)
	SELECT $1, $3, $2, at, coalesce(nullif($4::bigint, 0), (SELECT now FROM clock) + $7::bigint), $5, $6
	FROM start
	WHERE (SELECT count(*) FROM over) >= 0 -- first the old one goes
	  AND ($4 = 0 OR $4 BETWEEN (SELECT now FROM clock) + $8::bigint AND (SELECT now FROM clock) + $9::bigint)
	ON CONFLICT (site_id, customer_reference) WHERE state IN ('invited', 'linked') DO NOTHING
	RETURNING invited_at, expires_at
)
SELECT (SELECT now FROM clock), made.invited_at, made.expires_at, (
	SELECT o.id FROM over o
	WHERE webhook_wanted((SELECT organisation_id FROM sites s WHERE s.id = $1), $1, 'customerExpired'))
FROM clock LEFT JOIN made ON true`

// CreateInvitation makes an invited link, or returns the link that key made before (replayed, in
// the state of that time). key may be nil. Errors: ErrCustomerReferenceActive, *FieldError on
// expiresAt, *QuotaError, ErrIdempotencyKeyReused, ErrIdempotencyKeyInFlight.
func (s *Store) CreateInvitation(
	ctx context.Context, in NewInvitation, key *IdempotencyKey,
) (link Link, replayed bool, err error) {
	reserved, refused := s.gauges.invitations.reserve(ctx, in.OrganisationID, 1)
	defer func() { reserved.done(stored(1, err == nil && !replayed)) }()
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		id, again, err := idempotent(ctx, tx, key, func() (LinkID, error) {
			if refused != nil {
				return LinkID{}, refused
			}
			link, err = insertLink(ctx, tx, in)
			return link.ID, err
		})
		if replayed = again; err != nil || !again {
			return err
		}
		link, err = linkByID(ctx, tx, in.SiteID, id)
		link.State, link.LinkedAt, link.RevokedAt = LinkInvited, 0, 0
		return err
	})
	if err != nil {
		return Link{}, false, fmt.Errorf("models: create invitation: %w", err)
	}
	return link, replayed, nil
}

func insertLink(ctx context.Context, tx postgres.Tx, in NewInvitation) (Link, error) {
	link := Link{SiteID: in.SiteID, CustomerReference: in.CustomerReference, State: LinkInvited, KeyID: in.KeyID,
		TraceID: TraceIDFrom(ctx)}
	link.ID = newIDFor[linkNoun](link.TraceID)
	var now Millis
	var invitedAt, expiresAt sql.NullInt64
	var over LinkID
	err := tx.Tx.Tx.QueryRowContext(ctx, createLink, link.SiteID, link.CustomerReference, link.ID, in.ExpiresAt,
		link.KeyID, link.TraceID, DefaultInvitationLife.Milliseconds(), MinInvitationLife.Milliseconds(),
		MaxInvitationLife.Milliseconds()).Scan(&now, &invitedAt, &expiresAt, &over)
	if err != nil {
		return Link{}, err
	}
	if !invitedAt.Valid {
		return Link{}, whyNoLink(in.ExpiresAt, now)
	}
	if !over.IsZero() {
		if err := announceLinks(ctx, tx, over); err != nil {
			return Link{}, err
		}
	}
	link.InvitedAt, link.ExpiresAt = Millis(invitedAt.Int64), Millis(expiresAt.Int64)
	return link, nil
}

func whyNoLink(expiresAt, now Millis) error {
	if expiresAt != 0 && (expiresAt < now.Add(MinInvitationLife) || expiresAt > now.Add(MaxInvitationLife)) {
		return &FieldError{Field: "expiresAt", Message: "must be 5 minutes to 30 days ahead"}
	}
	return ErrCustomerReferenceActive
}

// LiveInvitation returns the newest link of the reference if it can still be accepted. Errors:
// ErrNoLiveInvitation; ErrNotFound if the reference has no link.
func (s *Store) LiveInvitation(ctx context.Context, site SiteID, reference string) (Link, error) {
	link, err := s.Customer(ctx, site, reference)
	if err == nil && link.State != LinkInvited {
		err = fmt.Errorf("models: live invitation: %w", ErrNoLiveInvitation)
	}
	if err != nil {
		return Link{}, err
	}
	return link, nil
}

// Customer returns the newest link of the reference, in its effective state; ErrNotFound if there
// is none.
func (s *Store) Customer(ctx context.Context, site SiteID, reference string) (link Link, err error) {
	err = s.pg.Do(ctx, func() error {
		link, err = newestLink(ctx, s.db.DB, site, reference)
		return err
	})
	if err != nil {
		return Link{}, fmt.Errorf("models: customer: %w", err)
	}
	return link, nil
}

// RevokeCustomer revokes the newest link of the reference if it is invited or linked. A revoked
// link stays unchanged. Errors: ErrLinkExpired; ErrNotFound if the reference has no link.
func (s *Store) RevokeCustomer(ctx context.Context, site SiteID, reference string) (link Link, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		newest, err := newestLink(ctx, tx.Tx.Tx, site, reference)
		if err != nil {
			return err
		}
		link, err = revokeLink(ctx, tx, site, newest.ID)
		return err
	})
	if err != nil {
		return Link{}, fmt.Errorf("models: revoke customer: %w", err)
	}
	return link, nil
}

// RevokeLink revokes one link, as RevokeCustomer does; ErrNotFound if no Site has such a link.
func (s *Store) RevokeLink(ctx context.Context, id LinkID) (link Link, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var site SiteID
		if site, err = siteOfLink(ctx, tx, id); err != nil {
			return err
		}
		link, err = revokeLink(ctx, tx, site, id)
		return err
	})
	if err != nil {
		return Link{}, fmt.Errorf("models: revoke link: %w", err)
	}
	return link, nil
}

// revokeLink decides by one conditional update. If it changes no row, the row's state explains why.
func revokeLink(ctx context.Context, tx postgres.Tx, site SiteID, id LinkID) (Link, error) {
	var link Link
	var wanted bool
	err := tx.Tx.Tx.QueryRowContext(ctx, `
		UPDATE customer_links l SET state = 'revoked', revoked_at = svc_now()
		WHERE site_id = $1 AND id = $2 AND (state = 'linked' OR state = 'invited' AND expires_at > svc_now())
		RETURNING webhook_wanted((SELECT s.organisation_id FROM sites s WHERE s.id = $1), $1, 'customerRevoked'), `+linkColumns,
		site, id).Scan(append([]any{&wanted}, link.fields()...)...)
	if err == nil && wanted {
		err = announceLinks(ctx, tx, id)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return link, err
	}
	if link, err = linkByID(ctx, tx, site, id); err == nil && link.State != LinkRevoked {
		err = ErrLinkExpired
	}
	return link, err
}

//go:embed customer_expire.sql
var expireInvitationsSQL string

// ExpireInvitations records the expiry of at most limit overdue invitations, with the events that
// their endpoints subscribe to. It returns their number. It skips locked rows.
func (s *Store) ExpireInvitations(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		rows, err := tx.Tx.Tx.QueryContext(ctx, expireInvitationsSQL, limit)
		if err != nil {
			return err
		}
		wanted, err := scanAll(rows, func(id *LinkID) []any { return []any{&n, id} })
		if err != nil || wanted[0].IsZero() {
			return err
		}
		return announceLinks(ctx, tx, wanted...)
	})
	if err != nil {
		return 0, fmt.Errorf("models: expire invitations: %w", err)
	}
	return n, nil
}

// querier reads one row, in a transaction or from the pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func newestLink(ctx context.Context, db querier, site SiteID, reference string) (Link, error) {
	return scanEffective(db.QueryRowContext(ctx, `
		SELECT svc_now(), `+linkColumns+` FROM customer_links l
		WHERE site_id = $1 AND customer_reference = $2 ORDER BY invited_at DESC, id DESC LIMIT 1`, site, reference))
}

func linkByID(ctx context.Context, tx postgres.Tx, site SiteID, id LinkID) (Link, error) {
	return scanEffective(tx.Tx.Tx.QueryRowContext(ctx, `
		SELECT svc_now(), `+linkColumns+` FROM customer_links l WHERE site_id = $1 AND id = $2`, site, id))
}

func siteOfLink(ctx context.Context, tx postgres.Tx, id LinkID) (site SiteID, err error) {
	err = tx.Tx.Tx.QueryRowContext(ctx, `SELECT site_id FROM customer_links WHERE id = $1`, id).Scan(&site)
	return site, notFound(err, "link")
}

func scanEffective(row *sql.Row) (Link, error) {
	var now Millis
	var link Link
	if err := row.Scan(append([]any{&now}, link.fields()...)...); err != nil {
		return Link{}, notFound(err, "link")
	}
	return link.effective(now), nil
}
