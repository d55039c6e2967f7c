package models

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrInvalidID says that a text is not an identifier of the noun it was parsed as.
var ErrInvalidID = errors.New("models: not an identifier of this kind")

// Noun names what an ID identifies; its prefix is the first part of the ID's text.
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
	// SiteID identifies a Site: the siteId of the paths.
	SiteID = ID[siteNoun]
	// ClientID identifies an API client: the client_id.
	ClientID = ID[clientNoun]
	// LinkID identifies a customer link, from invitation to linked customer.
	LinkID = ID[linkNoun]
	// BatchID identifies a batch across all Sites and times, unlike its reference.
	BatchID = ID[batchNoun]
	// TaskID identifies a row of the outbox.
	TaskID = ID[taskNoun]
	// KeyID identifies a key of the service, such as one that signs tokens.
	KeyID = ID[keyNoun]
	// WebhookEventID identifies an event: the idempotencyKey that partners see.
	WebhookEventID = ID[eventNoun]
	// PaymentIntentID identifies a payment intent: the paymentIntentId.
	PaymentIntentID = ID[intentNoun]
	// TransactionID identifies a payment: the transactionId.
	TransactionID = ID[transactionNoun]
	// MovementID identifies a movement of money. It is computed, not stored.
	MovementID = ID[movementNoun]
	// AuditEntryID identifies an entry of the audit log.
	AuditEntryID = ID[auditNoun]
)

// ID is an opaque identifier of one kind of noun. On the wire it is its noun's prefix, an
// underscore and a UUIDv7 ("site_01932c07-…"); in Postgres it is a plain uuid. The zero ID means
// "none"; Postgres holds it as the nil UUID.
type ID[N Noun] uuid.UUID

// NewID makes an ID (UUIDv7) that sorts after every earlier ID of this process.
func NewID[N Noun]() ID[N] { return ID[N](uuid.Must(uuid.NewV7())) }

// ParseID reads an ID's text. It accepts only the exact form that String writes, so that each ID
// has one spelling. Anything else is ErrInvalidID.
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

// String returns the wire form, prefix_uuid.
func (id ID[N]) String() string {
	var n N
	return n.prefix() + "_" + uuid.UUID(id).String()
}

// IsZero reports whether the ID is "none".
func (id ID[N]) IsZero() bool { return id == ID[N]{} }

// MarshalText writes the wire form.
func (id ID[N]) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the wire form.
func (id *ID[N]) UnmarshalText(b []byte) error {
	parsed, err := ParseID[N](string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value gives Postgres the bare UUID.
func (id ID[N]) Value() (driver.Value, error) { return uuid.UUID(id).String(), nil }

// Scan takes a uuid column; NULL becomes the zero ID.
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

// UUIDValue lets pgx send arrays of IDs in binary form.
func (id ID[N]) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: id, Valid: true}, nil }

// ScanUUID reads one element of a uuid array; NULL becomes the zero ID.
func (id *ID[N]) ScanUUID(v pgtype.UUID) error {
	*id = ID[N](v.Bytes)
	return nil
}
