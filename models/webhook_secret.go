package models

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// webhookSecretPrefix begins every secret's text.
const webhookSecretPrefix = "whsec_"

const (
	// WebhookSecretOverlap is how long the previous secret still signs after a rotation's
	// activation.
	WebhookSecretOverlap = 24 * time.Hour
	// WebhookActivateWithin is the maximum time from a rotation to its activation.
	WebhookActivateWithin = 30 * 24 * time.Hour
	// maxWebhookSecrets is the maximum number of secrets that sign at a time. A rotation beyond it
	// retires the oldest one.
	maxWebhookSecrets = 3
)

// WebhookSecret is a partner's signing secret: "whsec_" and 32 bytes in standard base64. Only
// Reveal returns the text; every other way to print it hides it.
type WebhookSecret struct{ text string }

// NewWebhookSecret returns a random secret.
func NewWebhookSecret() WebhookSecret {
	b := make([]byte, sha256.Size)
	rand.Read(b) // never fails
	return WebhookSecret{webhookSecretPrefix + base64.StdEncoding.EncodeToString(b)}
}

// Reveal returns the secret's text.
func (s WebhookSecret) Reveal() string { return s.text }

// String hides the secret.
func (s WebhookSecret) String() string { return webhookSecretPrefix + "…" }

// GoString hides the secret.
func (s WebhookSecret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s WebhookSecret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// bytes returns the 32 bytes that the text encodes.
func (s WebhookSecret) bytes() []byte {
	b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.text, webhookSecretPrefix)) // the text is our own
	return b
}

// WebhookSecrets are an organisation's secrets at one moment.
type WebhookSecrets struct {
	Current WebhookSecret   // signs x-svc-signature
	Live    []WebhookSecret // sign webhook-signature; the latest activation first, Current among them
}

// WebhookHeader is one header of a notification.
type WebhookHeader struct{ Name, Value string }

// Sign returns the headers of an event's notification. They include two signatures:
// x-svc-signature, keyed with the text of the current secret, and webhook-signature of the standard
// "Standard Webhooks", keyed with the bytes that the text of each live secret encodes. at is real
// time, which receivers compare with their own. attempt counts from 1. Without secrets, Sign leaves
// out the signatures.
func (s WebhookSecrets) Sign(e *WebhookEvent, at time.Time, attempt int) []WebhookHeader {
	id, second := e.ID.String(), strconv.FormatInt(at.Unix(), 10)
	headers := append(make([]WebhookHeader, 0, 8),
		WebhookHeader{"webhook-id", id},
		WebhookHeader{"webhook-timestamp", second},
		WebhookHeader{"svc-event-type", string(e.Type)},
		WebhookHeader{"svc-webhook-attempt", strconv.Itoa(attempt)},
		WebhookHeader{"content-type", "application/json;charset=UTF-8"})
	if e.Test {
		headers = append(headers, WebhookHeader{"svc-webhook-test", "true"})
	}
	if len(s.Live) == 0 {
		return headers
	}
	signed := []byte(id + "." + second + ".")
	signed = append(signed, e.Body...)
	signatures := make([]string, len(s.Live))
	for i, secret := range s.Live {
		signatures[i] = "v1," + sign(secret.bytes(), signed)
	}
	return append(headers,
		WebhookHeader{"webhook-signature", strings.Join(signatures, " ")},
		WebhookHeader{"x-svc-signature", sign([]byte(s.Current.text), e.Body)})
}

// sign returns the HMAC-SHA256 in standard base64.
func sign(key, message []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// ErrNoWebhookSecret says that an organisation has no secret yet: its first endpoint creates one.
var ErrNoWebhookSecret = errors.New("models: no webhook secret")

// webhookSecretRow is a row of the table webhook_secrets.
type webhookSecretRow struct {
	bun.BaseModel `bun:"table:webhook_secrets"`

	OrganisationID OrganisationID `bun:"organisation_id,pk"`
	ID             KeyID          `bun:"id,pk"`
	Sealed         []byte         `bun:"sealed"`
	CreatedAt      Millis         `bun:"created_at"`
	ActiveAt       Millis         `bun:"active_at"`
	RetiredAt      Millis         `bun:"retired_at,nullzero"`
}

// aad returns the additional authenticated data that binds the sealed secret to its row.
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

// WebhookSecrets returns the organisation's live secrets. ErrNoWebhookSecret: it has had no
// endpoint yet.
func (s *Store) WebhookSecrets(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID,
) (WebhookSecrets, error) {
	opened, err := openWebhookSecrets(ctx, s.pg, ring, []OrganisationID{organisation})
	if err == nil {
		err = opened[organisation].err
	}
	return opened[organisation].WebhookSecrets, wrap("webhook secrets", err)
}

// openedSecrets are an organisation's secrets, or the error of opening them.
type openedSecrets struct {
	WebhookSecrets
	err error
}

// openWebhookSecrets returns the live secrets of each organisation.
func openWebhookSecrets(
	ctx context.Context, on postgres.Session, ring *seal.Keyring, organisations []OrganisationID,
) (map[OrganisationID]openedSecrets, error) {
	live, now, err := liveWebhookSecrets(ctx, on, organisations...)
	if err != nil {
		return nil, err
	}
	all := make(map[OrganisationID]openedSecrets, len(organisations))
	for _, organisation := range organisations {
		secrets, err := openSecretRows(ring, live[organisation], now)
		all[organisation] = openedSecrets{secrets, err}
	}
	return all, nil
}

// openSecretRows opens an organisation's live rows, the latest activation first.
// ErrNoWebhookSecret: none is active.
func openSecretRows(ring *seal.Keyring, rows []webhookSecretRow, now Millis) (secrets WebhookSecrets, err error) {
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

var liveWebhookSecretsSQL = postgres.SQL(`
SELECT s.*, clock.now FROM service_now AS clock CROSS JOIN webhook_secrets s
WHERE s.organisation_id = ANY (:organisations::uuid[]) AND coalesce(s.retired_at > clock.now, true)
ORDER BY s.active_at DESC, s.id DESC`)

// liveWebhookSecrets returns the rows of each organisation that have not retired, the latest
// activation first. It also returns the service time; 0 without rows.
func liveWebhookSecrets(
	ctx context.Context, on postgres.Session, organisations ...OrganisationID,
) (live map[OrganisationID][]webhookSecretRow, now Millis, err error) {
	var rows []struct {
		webhookSecretRow
		Now Millis
	}
	err = on.Select(ctx, liveWebhookSecretsSQL, postgres.Args{"organisations": organisations}, &rows)
	live = make(map[OrganisationID][]webhookSecretRow, len(organisations))
	for _, r := range rows {
		live[r.OrganisationID] = append(live[r.OrganisationID], r.webhookSecretRow)
		now = r.Now
	}
	return live, now, err
}

// WebhookRotation is a secret that will replace the current one.
type WebhookRotation struct {
	Secret     WebhookSecret
	ActivateAt Millis // when x-svc-signature moves to it
	OverlapTo  Millis // end of webhook-signature's overlap with the previous secret
}

// RotateWebhookSecret creates the organisation's next secret. activateAt is when x-svc-signature
// moves to it: a past time means now, nil means after WebhookSecretOverlap. If an earlier rotation
// is not active yet, its secret retires at once. A partner that has lost a secret can thus rotate
// again. Errors: ErrNoWebhookSecret; *FieldError for a time too far ahead.
func (s *Store) RotateWebhookSecret(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID, activateAt *Millis,
) (rotation WebhookRotation, err error) {
	act := actFrom(ctx).about(SubjectWebhookSecret, "").in(organisation, SiteID{})
	err = s.act(ctx, func(tx postgres.Tx) error {
		if err := lockWebhookSecrets(ctx, tx, organisation); err != nil {
			return err
		}
		rows, now, err := liveWebhookSecrets(ctx, tx, organisation)
		if err != nil {
			return err
		}
		live := rows[organisation]
		if len(live) == 0 {
			return ErrNoWebhookSecret
		}
		rotation.ActivateAt = now.Add(WebhookSecretOverlap)
		if activateAt != nil {
			rotation.ActivateAt = max(now, *activateAt)
		}
		if rotation.ActivateAt > now.Add(WebhookActivateWithin) {
			most := days(WebhookActivateWithin)
			return &FieldError{Field: "activateAt", Message: "must be at most " + most + " ahead"}
		}
		rotation.OverlapTo = rotation.ActivateAt.Add(WebhookSecretOverlap)
		if err := retireWebhookSecrets(ctx, tx, live, now, rotation.OverlapTo); err != nil {
			return err
		}
		rotation.Secret, err = insertWebhookSecret(ctx, tx, ring, organisation, now, rotation.ActivateAt)
		act.with("activateAt", rotation.ActivateAt)
		return err
	})
	return rotation, wrap("rotate webhook secret", err)
}

// retireWebhookSecrets sets when each live secret retires after a rotation. A secret that is not
// active yet retires at once, and the current one at the end of the overlap. Earlier ones retire as
// planned, or at once beyond maxWebhookSecrets. live has the latest activation first.
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

var lockWebhookSecretsSQL = postgres.SQL(`
SELECT pg_advisory_xact_lock(hashtextextended('webhook_secrets/' || :organisation::text, 0))`)

// lockWebhookSecrets lets one transaction at a time create an organisation's secrets or put its
// endpoints. Deleting or unparking an endpoint does not take the lock.
func lockWebhookSecrets(ctx context.Context, tx postgres.Tx, organisation OrganisationID) error {
	_, err := tx.Run(ctx, lockWebhookSecretsSQL, postgres.Args{"organisation": organisation.String()})
	return err
}

// ResealWebhookSecrets encrypts every secret again under the ring's first master key, and returns
// the number of changed secrets. Afterwards, no secret needs the ring's other keys.
func (s *Store) ResealWebhookSecrets(ctx context.Context, ring *seal.Keyring) (changed int, err error) {
	actFrom(ctx).about(SubjectMasterKey, "")
	err = s.act(ctx, func(tx postgres.Tx) error {
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
