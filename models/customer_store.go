package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// linkColumns are the columns of the table customer_links, as l, that a CustomerLink holds.
const linkColumns = `l.site_id, l.id, l.customer_reference, l.state, l.invited_at, l.expires_at, l.linked_at,
    l.revoked_at, l.key_id, l.trace_id`

var (
	//go:embed customer_invite.sql
	inviteText string
	inviteSQL  = postgres.SQL(inviteText)

	//go:embed customer_expire.sql
	expireInvitationsText string
	expireInvitationsSQL  = postgres.SQL(expireInvitationsText)

	newestLinkSQL = postgres.SQL(`
SELECT svc_now() AS now, ` + linkColumns + ` FROM customer_links l
WHERE site_id = :site AND customer_reference = :reference ORDER BY invited_at DESC, id DESC LIMIT 1`)
	linkByIDSQL = postgres.SQL(`
SELECT svc_now() AS now, ` + linkColumns + ` FROM customer_links l WHERE site_id = :site AND id = :id`)
	siteOfLinkSQL = postgres.SQL(`SELECT site_id FROM customer_links WHERE id = :id`)
	revokeLinkSQL = postgres.SQL(`
UPDATE customer_links l SET state = 'revoked', revoked_at = svc_now()
WHERE site_id = :site AND id = :id AND (state = 'linked' OR state = 'invited' AND expires_at > svc_now())
RETURNING ` + linkColumns + `,
    webhook_wanted((SELECT s.organisation_id FROM sites s WHERE s.id = :site), :site, 'customerRevoked') AS wanted`)
)

// CreateInvitation makes an invited link. If an earlier call with the same idempotency key made a
// link, CreateInvitation returns that link as it was made, and replayed is true. key may be nil.
// Errors: ErrCustomerReferenceActive; *FieldError for expiresAt; *QuotaError;
// ErrIdempotencyKeyReused; ErrIdempotencyKeyInFlight.
func (s *Store) CreateInvitation(
	ctx context.Context, in NewInvitation, key *IdempotencyKey,
) (link CustomerLink, replayed bool, err error) {
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
	return link, replayed, wrap("create invitation", err)
}

// insertLink makes an invited link. It announces the expiry of the earlier link that the new one
// replaces, if an endpoint subscribes to that event.
func insertLink(ctx context.Context, tx postgres.Tx, in NewInvitation) (CustomerLink, error) {
	link := CustomerLink{
		SiteID: in.SiteID, CustomerReference: in.CustomerReference, State: LinkInvited, KeyID: in.KeyID,
		TraceID: TraceIDFrom(ctx),
	}
	link.ID = newIDFor[linkNoun](link.TraceID)
	var row struct {
		Now, InvitedAt, ExpiresAt Millis
		Made                      bool
		Expired                   LinkID // to announce; zero: none
	}
	err := tx.Get(ctx, inviteSQL, postgres.Args{
		"site": link.SiteID, "reference": link.CustomerReference, "id": link.ID, "key": link.KeyID,
		"trace": string(link.TraceID), "expires_at": in.ExpiresAt, "default_life": DefaultInvitationLife.Milliseconds(),
		"min_life": MinInvitationLife.Milliseconds(), "max_life": MaxInvitationLife.Milliseconds(),
	}, &row)
	if err != nil {
		return CustomerLink{}, err
	}
	if !row.Made {
		return CustomerLink{}, whyNoLink(in.ExpiresAt, row.Now)
	}
	if !row.Expired.IsZero() {
		if err := announceLinks(ctx, tx, row.Expired); err != nil {
			return CustomerLink{}, err
		}
	}
	link.InvitedAt, link.ExpiresAt = row.InvitedAt, row.ExpiresAt
	return link, nil
}

// whyNoLink returns the reason for which inviteSQL made no link.
func whyNoLink(expiresAt, now Millis) error {
	if expiresAt != 0 {
		if err := CheckInvitationExpiry(expiresAt, now); err != nil {
			return err
		}
	}
	return ErrCustomerReferenceActive
}

// CheckInvitationExpiry returns a *FieldError unless CreateInvitation accepts the expiry at the
// given time.
func CheckInvitationExpiry(expiresAt, now Millis) error {
	if expiresAt.isAhead(now, MinInvitationLife, MaxInvitationLife) {
		return nil
	}
	return &FieldError{Field: "expiresAt", Message: "must be 5 minutes to 30 days ahead"}
}

// LiveInvitation returns the newest link of a reference if that link is an invitation that can
// still be accepted. Errors: ErrNoLiveInvitation; ErrNotFound if the reference has no link.
func (s *Store) LiveInvitation(ctx context.Context, site SiteID, reference string) (CustomerLink, error) {
	link, err := s.Customer(ctx, site, reference)
	if err == nil && link.State != LinkInvited {
		err = fmt.Errorf("models: live invitation: %w", ErrNoLiveInvitation)
	}
	return link, err
}

// Customer returns the newest link of a reference, in its effective state: an invitation past its
// expiry is expired; see LinkState.At. ErrNotFound: the reference has no link.
func (s *Store) Customer(ctx context.Context, site SiteID, reference string) (link CustomerLink, err error) {
	link, err = newestLink(ctx, s.pg, site, reference)
	return link, wrap("customer", err)
}

// RevokeCustomer revokes the newest link of a reference if the link is invited or linked. A revoked
// link stays unchanged. Errors: ErrLinkExpired; ErrNotFound if the reference has no link.
func (s *Store) RevokeCustomer(ctx context.Context, site SiteID, reference string) (link CustomerLink, err error) {
	act := actFrom(ctx).about(SubjectCustomerLink, "").in(OrganisationID{}, site)
	err = s.act(ctx, func(tx postgres.Tx) error {
		newest, err := newestLink(ctx, tx, site, reference)
		if err != nil {
			return err
		}
		act.about(SubjectCustomerLink, newest.ID.String())
		link, err = revokeLink(ctx, tx, site, newest.ID)
		return err
	})
	return link, wrap("revoke customer", err)
}

// RevokeLink revokes one link of any Site, as RevokeCustomer does. Errors: ErrLinkExpired;
// ErrNotFound.
func (s *Store) RevokeLink(ctx context.Context, id LinkID) (link CustomerLink, err error) {
	act := actFrom(ctx).about(SubjectCustomerLink, id.String())
	err = s.act(ctx, func(tx postgres.Tx) error {
		var site SiteID
		if site, err = siteOfLink(ctx, tx, id); err != nil {
			return err
		}
		act.in(OrganisationID{}, site)
		link, err = revokeLink(ctx, tx, site, id)
		return err
	})
	return link, wrap("revoke link", err)
}

// revokeLink revokes a link by one conditional update. If the update changes no row, the link's
// state tells the reason. errUnchanged: the link is revoked already.
func revokeLink(ctx context.Context, tx postgres.Tx, site SiteID, id LinkID) (CustomerLink, error) {
	var row struct {
		CustomerLink
		Wanted bool // an endpoint subscribes to the event of the revocation
	}
	err := tx.Get(ctx, revokeLinkSQL, postgres.Args{"site": site, "id": id}, &row)
	if err == nil && row.Wanted {
		err = announceLinks(ctx, tx, id)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return row.CustomerLink, err
	}
	link, err := linkByID(ctx, tx, site, id)
	if err == nil {
		err = errUnchanged
		if link.State != LinkRevoked {
			err = ErrLinkExpired
		}
	}
	return link, err
}

// ExpireInvitations marks at most limit invitations that are past their expiry as expired, and
// returns their number. It creates the webhook events that endpoints subscribe to. It skips locked
// links.
func (s *Store) ExpireInvitations(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var rows []struct {
			Expired int
			ID      LinkID // a link with an event to announce; zero: none
		}
		if err := tx.Select(ctx, expireInvitationsSQL, postgres.Args{"most": limit}, &rows); err != nil {
			return err
		}
		n = rows[0].Expired
		if rows[0].ID.IsZero() {
			return nil
		}
		ids := make([]LinkID, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		return announceLinks(ctx, tx, ids...)
	})
	if err != nil {
		return 0, fmt.Errorf("models: expire invitations: %w", err)
	}
	return n, nil
}

// newestLink reads the newest link of a reference in its effective state.
func newestLink(ctx context.Context, on postgres.Session, site SiteID, reference string) (CustomerLink, error) {
	return effectiveLink(ctx, on, newestLinkSQL, postgres.Args{"site": site, "reference": reference})
}

// linkByID reads a link of a Site in its effective state.
func linkByID(ctx context.Context, tx postgres.Tx, site SiteID, id LinkID) (CustomerLink, error) {
	return effectiveLink(ctx, tx, linkByIDSQL, postgres.Args{"site": site, "id": id})
}

// siteOfLink returns the Site of a link.
func siteOfLink(ctx context.Context, tx postgres.Tx, id LinkID) (site SiteID, err error) {
	err = tx.Get(ctx, siteOfLinkSQL, postgres.Args{"id": id}, &site)
	return site, notFound(err, "link")
}

// effectiveLink reads the link that a statement selects, in its effective state. ErrNotFound: there
// is none.
func effectiveLink(
	ctx context.Context, on postgres.Session, statement postgres.Statement, args postgres.Args,
) (CustomerLink, error) {
	var row struct {
		CustomerLink
		Now Millis
	}
	if err := on.Get(ctx, statement, args, &row); err != nil {
		return CustomerLink{}, notFound(err, "link")
	}
	return row.effective(row.Now), nil
}
