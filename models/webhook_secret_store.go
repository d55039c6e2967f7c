package models

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"

	"github.com/uptrace/bun"
)

// ErrNoWebhookSecret says that an organisation has no secret yet: its first endpoint creates one.
var ErrNoWebhookSecret = errors.New("models: no webhook secret")

type webhookSecretRow struct {
	bun.BaseModel `bun:"table:webhook_secrets"`

	OrganisationID OrganisationID `bun:"organisation_id,pk"`
	ID             KeyID          `bun:"id,pk"`
	Sealed         []byte         `bun:"sealed"`
	CreatedAt      Millis         `bun:"created_at"`
	ActiveAt       Millis         `bun:"active_at"`
	RetiredAt      Millis         `bun:"retired_at,nullzero"`
}

func (r *webhookSecretRow) aad() []byte {
	return []byte("webhook_secrets/" + r.OrganisationID.String() + "/" + r.ID.String())
}

func (r *webhookSecretRow) open(ring *seal.Keyring) (WebhookSecret, error) {
	plain, err := ring.Open(r.Sealed, r.aad())
	if err != nil {
		return WebhookSecret{}, fmt.Errorf("models: open webhook secret %s: %w", r.ID, err)
	}
	return WebhookSecret{string(plain)}, nil
}

// insertWebhookSecret inserts a secret that becomes current at a time.
func insertWebhookSecret(
	ctx context.Context, tx postgres.Tx, ring *seal.Keyring, organisation OrganisationID, now, activeAt Millis,
) (WebhookSecret, error) {
	secret := NewWebhookSecret()
	row := &webhookSecretRow{OrganisationID: organisation, ID: NewID[keyNoun](), CreatedAt: now, ActiveAt: activeAt}
	row.Sealed = ring.Seal([]byte(secret.text), row.aad())
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return secret, err
}

// WebhookSecrets returns the organisation's live secrets. ErrNoWebhookSecret before its first
// endpoint.
func (s *Store) WebhookSecrets(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID,
) (secrets WebhookSecrets, err error) {
	err = s.pg.Do(ctx, func() error {
		secrets, err = webhookSecrets(ctx, s.db, ring, organisation)
		return err
	})
	return secrets, wrap("webhook secrets", err)
}

func webhookSecrets(
	ctx context.Context, db bun.IDB, ring *seal.Keyring, organisation OrganisationID,
) (WebhookSecrets, error) {
	rows, now, err := liveWebhookSecrets(ctx, db, organisation)
	if err != nil {
		return WebhookSecrets{}, err
	}
	return openWebhookSecrets(ring, rows, now)
}

// openWebhookSecrets opens an organisation's live rows.
func openWebhookSecrets(ring *seal.Keyring, rows []webhookSecretRow, now Millis) (WebhookSecrets, error) {
	var secrets WebhookSecrets
	for i := range rows {
		secret, err := rows[i].open(ring)
		if err != nil {
			return WebhookSecrets{}, err
		}
		secrets.Live = append(secrets.Live, secret)
		if secrets.Current.text == "" && rows[i].ActiveAt <= now {
			secrets.Current = secret
		}
	}
	if secrets.Current.text == "" {
		return WebhookSecrets{}, ErrNoWebhookSecret
	}
	return secrets, nil
}

// webhookSecretsOf returns the secrets of many organisations. It leaves out organisations without
// secrets, or with secrets that cannot be opened.
func webhookSecretsOf(
	ctx context.Context, tx postgres.Tx, ring *seal.Keyring, organisations []OrganisationID,
) (map[OrganisationID]WebhookSecrets, error) {
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT s.organisation_id, s.id, s.sealed, s.active_at, `+svcNow+` FROM webhook_secrets s
WHERE s.organisation_id = ANY ($1::uuid[]) AND coalesce(s.retired_at > `+svcNow+`, true)
ORDER BY s.active_at DESC, s.id DESC`, organisations)
	if err != nil {
		return nil, err
	}
	var now Millis
	live, err := scanAll(rows, func(r *webhookSecretRow) []any {
		return []any{&r.OrganisationID, &r.ID, &r.Sealed, &r.ActiveAt, &now}
	})
	if err != nil {
		return nil, err
	}
	byOrganisation := make(map[OrganisationID][]webhookSecretRow, len(organisations))
	for _, row := range live {
		byOrganisation[row.OrganisationID] = append(byOrganisation[row.OrganisationID], row)
	}
	secrets := make(map[OrganisationID]WebhookSecrets, len(organisations))
	for organisation, rows := range byOrganisation {
		if opened, err := openWebhookSecrets(ring, rows, now); err == nil {
			secrets[organisation] = opened
		}
	}
	return secrets, nil
}

// liveWebhookSecrets returns the rows that have not retired, the latest activation first, and the
// service time.
func liveWebhookSecrets(
	ctx context.Context, db bun.IDB, organisation OrganisationID,
) ([]webhookSecretRow, Millis, error) {
	var rows []struct {
		webhookSecretRow
		Now Millis `bun:"now"`
	}
	err := db.NewRaw(`
		SELECT s.*, clock.now FROM webhook_secrets s, (SELECT svc_now() AS now) clock
		WHERE s.organisation_id = ? AND coalesce(s.retired_at > clock.now, true)
		ORDER BY s.active_at DESC, s.id DESC`, organisation).Scan(ctx, &rows)
	if err != nil || len(rows) == 0 {
		return nil, 0, err
	}
	live := make([]webhookSecretRow, len(rows))
	for i := range rows {
		live[i] = rows[i].webhookSecretRow
	}
	return live, rows[0].Now, nil
}

// WebhookRotation is a secret that will replace the current one.
type WebhookRotation struct {
	Secret     WebhookSecret
	ActivateAt Millis // when x-svc-signature moves to it
	OverlapTo  Millis // end of webhook-signature's overlap with the previous secret
}

// RotateWebhookSecret creates the organisation's next secret. activateAt is when x-svc-signature
// moves to it: a past time means now, nil means after WebhookSecretOverlap. It drops a next secret
// that is not active yet, so a partner that lost it can rotate again. Errors: ErrNoWebhookSecret;
// *FieldError for a time too far ahead.
func (s *Store) RotateWebhookSecret(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID, activateAt *Millis,
) (rotation WebhookRotation, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		if err := lockWebhookSecrets(ctx, tx, organisation); err != nil {
			return err
		}
		live, now, err := liveWebhookSecrets(ctx, tx, organisation)
		if err != nil {
			return err
		}
		if len(live) == 0 {
			return ErrNoWebhookSecret
		}
		rotation.ActivateAt = now.Add(WebhookSecretOverlap)
		if activateAt != nil {
			rotation.ActivateAt = max(now, *activateAt)
		}
		if rotation.ActivateAt > now.Add(WebhookActivateWithin) {
			return &FieldError{Field: "activateAt", Message: "must be at most 30 days ahead"}
		}
		rotation.OverlapTo = rotation.ActivateAt.Add(WebhookSecretOverlap)
		if err := retireWebhookSecrets(ctx, tx, live, now, rotation.OverlapTo); err != nil {
			return err
		}
		rotation.Secret, err = insertWebhookSecret(ctx, tx, ring, organisation, now, rotation.ActivateAt)
		return err
	})
	return rotation, wrap("rotate webhook secret", err)
}

// retireWebhookSecrets sets when each live secret retires after a rotation. A next secret retires
// at once, and the current one at the end of the overlap. Earlier ones retire as planned, or at
// once beyond maxWebhookSecrets.
func retireWebhookSecrets(ctx context.Context, tx postgres.Tx, live []webhookSecretRow, now, overlapTo Millis) error {
	kept := 0
	for i := range live {
		at := live[i].RetiredAt
		switch {
		case live[i].ActiveAt > now:
			at = now
		case kept == 0:
			at, kept = overlapTo, 1
		case kept == maxWebhookSecrets-1:
			at = now
		default:
			kept++
		}
		_, err := tx.NewUpdate().Model(&live[i]).Set("retired_at = ?", at).WherePK().Exec(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// lockWebhookSecrets lets one transaction at a time change an organisation's secrets and endpoints.
func lockWebhookSecrets(ctx context.Context, tx postgres.Tx, organisation OrganisationID) error {
	_, err := tx.Tx.Tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('webhook_secrets/' || $1, 0))`,
		organisation.String())
	return err
}

// ResealWebhookSecrets reseals every secret under the ring's first master key and returns the
// number of changes. Afterwards the ring's other keys can be dropped.
func (s *Store) ResealWebhookSecrets(ctx context.Context, ring *seal.Keyring) (changed int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var rows []webhookSecretRow
		if err := tx.NewSelect().Model(&rows).For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		changed = 0
		for i := range rows {
			resealed, differs, err := ring.Reseal(rows[i].Sealed, rows[i].aad())
			if err != nil {
				return fmt.Errorf("%s: %w", rows[i].ID, err)
			}
			if !differs {
				continue
			}
			changed++
			if _, err := tx.NewUpdate().Model(&rows[i]).Set("sealed = ?", resealed).WherePK().Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return changed, wrap("reseal webhook secrets", err)
}

// Keyring is the ring that opens the keys.
func (k *Keys) Keyring() *seal.Keyring { return k.ring }
