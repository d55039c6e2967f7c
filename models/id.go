package models

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrInvalidID says that a text is not an ID of the expected noun.
var ErrInvalidID = errors.New("models: not an identifier of this kind")

// Noun is the kind of thing that an ID identifies, such as a batch. Its prefix begins the ID's
// text.
type Noun interface{ prefix() string }

type (
	organisationNoun struct{}
	siteNoun         struct{}
	clientNoun       struct{}
	linkNoun         struct{}
	batchNoun        struct{}
	taskNoun         struct{}
	keyNoun          struct{}
	eventNoun        struct{}
	intentNoun       struct{}
	transactionNoun  struct{}
	movementNoun     struct{}
	auditNoun        struct{}
)

func (organisationNoun) prefix() string { return "org" }
func (siteNoun) prefix() string         { return "site" }
func (clientNoun) prefix() string       { return "cli" }
func (linkNoun) prefix() string         { return "lnk" }
func (batchNoun) prefix() string        { return "bat" }
func (taskNoun) prefix() string         { return "tsk" }
func (keyNoun) prefix() string          { return "key" }
func (eventNoun) prefix() string        { return "evt" }
func (intentNoun) prefix() string       { return "pi" }
func (transactionNoun) prefix() string  { return "txn" }
func (movementNoun) prefix() string     { return "mov" }
func (auditNoun) prefix() string        { return "aud" }

type (
	// OrganisationID identifies a partner.
	OrganisationID = ID[organisationNoun]
	// SiteID identifies a Site: the siteId in the paths of the API.
	SiteID = ID[siteNoun]
	// ClientID identifies an API client: the client_id.
	ClientID = ID[clientNoun]
	// LinkID identifies a customer link. It stays the same when the invitation is accepted.
	LinkID = ID[linkNoun]
	// BatchID identifies a batch across all Sites and times, unlike its batchReference.
	BatchID = ID[batchNoun]
	// TaskID identifies a row of the outbox.
	TaskID = ID[taskNoun]
	// KeyID identifies one of the service's own keys, such as one that signs tokens.
	KeyID = ID[keyNoun]
	// WebhookEventID identifies a webhook event: the idempotencyKey that partners see.
	WebhookEventID = ID[eventNoun]
	// PaymentIntentID identifies a payment intent: the paymentIntentId.
	PaymentIntentID = ID[intentNoun]
	// TransactionID identifies a customer's payment of a payment intent: the transactionId.
	TransactionID = ID[transactionNoun]
	// MovementID identifies a ledger entry as partners see it. It is computed, not stored.
	MovementID = ID[movementNoun]
	// AuditEntryID identifies an entry of the audit log.
	AuditEntryID = ID[auditNoun]
)

// ID is an opaque identifier of a thing of one noun. On the wire it is the noun's prefix, an
// underscore and a UUID, as in "site_01932c07-…". In Postgres it is a plain uuid. The zero ID means
// "none"; as an argument of a statement it is the nil UUID.
type ID[N Noun] uuid.UUID

// NewID returns a new ID, a UUIDv7 of the process's real time. It sorts after every ID that NewID
// returned earlier in this process.
func NewID[N Noun]() ID[N] { return ID[N](uuid.Must(uuid.NewV7())) }

// ParseID parses the wire form of an ID. It accepts only the exact form that String returns, so
// that each ID has one spelling. Anything else is ErrInvalidID.
func ParseID[N Noun](s string) (ID[N], error) {
	var n N
	rest, ok := strings.CutPrefix(s, n.prefix()+"_")
	if !ok || len(rest) != 36 {
		return ID[N]{}, ErrInvalidID
	}
	u, err := uuid.Parse(rest)
	if err != nil || u.String() != rest {
		return ID[N]{}, ErrInvalidID
	}
	return ID[N](u), nil
}

// String returns the wire form: the noun's prefix, an underscore and the UUID in lower case.
func (id ID[N]) String() string {
	var n N
	return n.prefix() + "_" + uuid.UUID(id).String()
}

// IsZero reports whether the ID is "none".
func (id ID[N]) IsZero() bool { return id == ID[N]{} }

// MarshalText implements encoding.TextMarshaler: it returns the wire form.
func (id ID[N]) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: it parses the wire form, as ParseID does.
func (id *ID[N]) UnmarshalText(b []byte) error {
	parsed, err := ParseID[N](string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value implements driver.Valuer: it returns the UUID without the prefix.
func (id ID[N]) Value() (driver.Value, error) { return uuid.UUID(id).String(), nil }

// Scan implements sql.Scanner for a uuid column. NULL becomes the zero ID.
func (id *ID[N]) Scan(src any) error {
	if src == nil {
		*id = ID[N]{}
		return nil
	}
	var u uuid.UUID
	if err := u.Scan(src); err != nil {
		return fmt.Errorf("models: scan id: %w", err)
	}
	*id = ID[N](u)
	return nil
}

// UUIDValue implements pgtype.UUIDValuer, so that pgx sends arrays of IDs in binary form.
func (id ID[N]) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: id, Valid: true}, nil }

// ScanUUID implements pgtype.UUIDScanner for elements of uuid arrays. NULL becomes the zero ID.
func (id *ID[N]) ScanUUID(v pgtype.UUID) error {
	*id = ID[N](v.Bytes)
	return nil
}
