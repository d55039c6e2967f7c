package models

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// clientRow is a row of the table api_clients.
type clientRow struct {
	bun.BaseModel `bun:"table:api_clients"`

	ID             ClientID        `bun:"id,pk"`
	OrganisationID OrganisationID  `bun:"organisation_id,nullzero"`
	Name           string          `bun:"name"`
	Scopes         []string        `bun:"scopes,array"`
	JWKS           json.RawMessage `bun:"jwks,type:jsonb,nullzero"`
	Addresses      []string        `bun:"allowed_addresses,array"`
	CreatedAt      Millis          `bun:"created_at"`
	DisabledAt     Millis          `bun:"disabled_at,nullzero"`
}

func (r *clientRow) client() Client {
	c := Client{
		ID: r.ID, OrganisationID: r.OrganisationID, Name: r.Name, JWKS: r.JWKS,
		CreatedAt: r.CreatedAt, DisabledAt: r.DisabledAt,
	}
	for _, scope := range r.Scopes {
		c.Scopes = append(c.Scopes, Scope(scope))
	}
	for _, text := range r.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			prefix = netip.Prefix{} // contains no address, so a malformed prefix allows none
		}
		c.AllowedAddresses = append(c.AllowedAddresses, prefix)
	}
	return c
}

func scopeTexts(scopes []Scope) []string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return texts
}

// CreateClient creates a client without a secret. The zero organisation means the customer app's
// backend. Errors: ErrName; ErrScopes; ErrNotFound for an unknown organisation.
func (s *Store) CreateClient(
	ctx context.Context, organisation OrganisationID, name string, scopes []Scope,
) (Client, error) {
	return s.createClient(ctx, organisation, name, scopes, func(postgres.Tx, ClientID) error { return nil })
}

// CreateClientWithSecret creates a client as CreateClient does, with a first secret. It returns the
// text of the secret, which is not stored.
func (s *Store) CreateClientWithSecret(
	ctx context.Context, organisation OrganisationID, name string, scopes []Scope,
) (client Client, secret string, err error) {
	client, err = s.createClient(ctx, organisation, name, scopes, func(tx postgres.Tx, id ClientID) (err error) {
		secret, err = insertClientSecret(ctx, tx, id)
		return err
	})
	return client, secret, err
}

// createClient creates a client, and runs then in the same database transaction.
func (s *Store) createClient(
	ctx context.Context, organisation OrganisationID, name string, scopes []Scope,
	then func(postgres.Tx, ClientID) error,
) (Client, error) {
	row := &clientRow{
		ID: NewID[clientNoun](), OrganisationID: organisation, Name: name, Scopes: scopeTexts(scopes),
		Addresses: []string{},
	}
	act := actFrom(ctx).about(SubjectClient, row.ID.String()).in(organisation, SiteID{}).with("scopes", scopes)
	nameErr := checkName(name)
	if nameErr == nil {
		act.with("name", name)
	}
	if err := errors.Join(nameErr, checkScopes(organisation, scopes)); err != nil {
		return Client{}, err
	}
	err := s.act(ctx, func(tx postgres.Tx) error {
		_, err := tx.NewInsert().Model(row).Value("created_at", "svc_now()").Returning("created_at").Exec(ctx)
		if err != nil {
			return err
		}
		return then(tx, row.ID)
	})
	if isForeignKeyViolation(err) {
		err = notFoundError("organisation")
	}
	if err != nil {
		return Client{}, wrap("create client", err)
	}
	return row.client(), nil
}

// Client returns the client with the id, disabled or not; ErrNotFound if there is none.
func (s *Store) Client(ctx context.Context, id ClientID) (Client, error) {
	row := &clientRow{ID: id}
	err := s.pg.Read(ctx, func(on bun.IDB) error { return on.NewSelect().Model(row).WherePK().Scan(ctx) })
	if err != nil {
		return Client{}, wrap("read client", notFound(err, "client"))
	}
	return row.client(), nil
}

// Clients returns the clients of an organisation, oldest first. The zero organisation means the
// customer app's backend.
func (s *Store) Clients(ctx context.Context, organisation OrganisationID) ([]Client, error) {
	var rows []clientRow
	err := s.pg.Read(ctx, func(on bun.IDB) error {
		q := on.NewSelect().Model(&rows).Where("organisation_id = ?", organisation)
		if organisation.IsZero() {
			q = on.NewSelect().Model(&rows).Where("organisation_id IS NULL")
		}
		return q.Order("id").Scan(ctx)
	})
	all := make([]Client, len(rows))
	for i := range rows {
		all[i] = rows[i].client()
	}
	return all, wrap("read clients", err)
}

// SetClientScopes replaces a client's scopes. Within 30 seconds, earlier tokens are limited to the
// new scopes. Errors: ErrNotFound; ErrScopes.
func (s *Store) SetClientScopes(ctx context.Context, id ClientID, scopes []Scope) error {
	act := actFrom(ctx).with("scopes", scopes)
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		act.with("scopesBefore", row.Scopes)
		if err := checkScopes(row.OrganisationID, scopes); err != nil {
			return err
		}
		row.Scopes = scopeTexts(scopes)
		_, err := tx.NewUpdate().Model(row).Column("scopes").WherePK().Exec(ctx)
		return err
	})
}

// SetClientAddresses replaces the addresses from which a client may call; an empty list allows any
// address. Within 30 seconds, calls from other addresses are refused. Errors: ErrNotFound;
// ErrAddresses.
func (s *Store) SetClientAddresses(ctx context.Context, id ClientID, prefixes []netip.Prefix) error {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	act := actFrom(ctx).with("addresses", texts)
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		act.with("addressesBefore", row.Addresses)
		if err := checkAddresses(prefixes); err != nil {
			return err
		}
		row.Addresses = texts
		_, err := tx.NewUpdate().Model(row).Column("allowed_addresses").WherePK().Exec(ctx)
		return err
	})
}

// SetClientJWKS replaces a client's public keys for private_key_jwt; nil removes them. The caller
// has validated the JSON Web Key Set. ErrNotFound: there is no such client.
func (s *Store) SetClientJWKS(ctx context.Context, id ClientID, jwks json.RawMessage) error {
	if jwks != nil {
		digest := sha256.Sum256(jwks)
		actFrom(ctx).with("keySet", secretFingerprint(digest[:]))
	}
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		row.JWKS = jwks
		_, err := tx.NewUpdate().Model(row).Column("jwks").WherePK().Exec(ctx)
		return err
	})
}

// DisableClient disables a client. It gets no new tokens, and within 30 seconds its tokens are
// refused. A disabled client stays as it is. ErrNotFound: there is no such client.
func (s *Store) DisableClient(ctx context.Context, id ClientID) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		_, err := tx.NewUpdate().Model(row).Set("disabled_at = coalesce(disabled_at, svc_now())").WherePK().Exec(ctx)
		return err
	})
}

// EnableClient reverts DisableClient. ErrNotFound: there is no such client.
func (s *Store) EnableClient(ctx context.Context, id ClientID) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		_, err := tx.NewUpdate().Model(row).Set("disabled_at = NULL").WherePK().Exec(ctx)
		return err
	})
}

// changeClient locks a client's row, runs do with it, and records the context's act. ErrNotFound:
// there is no such client.
func (s *Store) changeClient(ctx context.Context, id ClientID, do func(tx postgres.Tx, row *clientRow) error) error {
	act := actFrom(ctx).about(SubjectClient, id.String())
	return wrap("change client", s.act(ctx, func(tx postgres.Tx) error {
		row := &clientRow{ID: id}
		if err := tx.NewSelect().Model(row).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return notFound(err, "client")
		}
		act.in(row.OrganisationID, SiteID{})
		return do(tx, row)
	}))
}

var useAssertionSQL = postgres.SQL(`
INSERT INTO client_assertions (client_id, jti, expires_at) VALUES (:client, :jti, :expires_at) ON CONFLICT DO NOTHING`)

// UseAssertion records the jti of a client assertion (RFC 7523), so that the assertion cannot be
// used again before expiresAt, in server time. ErrAssertionUsed: the jti is recorded already.
func (s *Store) UseAssertion(ctx context.Context, client ClientID, jti string, expiresAt Millis) error {
	digest := sha256.Sum256([]byte(jti)) // bounds the key's size
	used, err := s.pg.Run(ctx, useAssertionSQL, postgres.Args{
		"client": client, "jti": base64.RawURLEncoding.EncodeToString(digest[:]), "expires_at": expiresAt,
	})
	if err == nil && used == 0 {
		err = ErrAssertionUsed
	}
	return wrap("use assertion", err)
}
