package models

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"partnerbilling/models/postgres"

	"github.com/uptrace/bun"
)

type clientRow struct {
	bun.BaseModel `bun:"table:api_clients"`

	ID             ClientID        `bun:"id,pk"`
	OrganisationID OrganisationID  `bun:"organisation_id,nullzero"`
	Name           string          `bun:"name"`
	Scopes         []string        `bun:"scopes,array"`
	JWKS           json.RawMessage `bun:"jwks,type:jsonb,nullzero"`
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
	return c
}

func scopeTexts(scopes []Scope) []string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return texts
}

type secretRow struct {
	bun.BaseModel `bun:"table:client_secrets"`

	ClientID   ClientID `bun:"client_id,pk"`
	SecretHash []byte   `bun:"secret_hash,pk"`
	CreatedAt  Millis   `bun:"created_at"`
}

// CreateClient creates a client without a secret. The zero organisation means the customer app's
// backend. Errors: ErrScopes, ErrNotFound for an unknown organisation.
func (s *Store) CreateClient(
	ctx context.Context, organisation OrganisationID, name string, scopes []Scope,
) (Client, error) {
	if err := checkScopes(organisation, scopes); err != nil {
		return Client{}, err
	}
	row := &clientRow{ID: NewID[clientNoun](), OrganisationID: organisation, Name: name, Scopes: scopeTexts(scopes)}
	err := s.pg.Do(ctx, func() error {
		_, err := s.db.NewInsert().Model(row).Value("created_at", "svc_now()").Returning("created_at").Exec(ctx)
		return err
	})
	if isForeignKeyViolation(err) {
		return Client{}, notFoundError("organisation")
	}
	return row.client(), err
}

// Client returns the client with the id, disabled or not; ErrNotFound if there is none.
func (s *Store) Client(ctx context.Context, id ClientID) (Client, error) {
	row := &clientRow{ID: id}
	err := s.pg.Do(ctx, func() error { return s.db.NewSelect().Model(row).WherePK().Scan(ctx) })
	if err != nil {
		return Client{}, notFound(err, "client")
	}
	return row.client(), nil
}

// Clients are the organisation's clients (zero: the customer app's), oldest first.
func (s *Store) Clients(ctx context.Context, organisation OrganisationID) ([]Client, error) {
	var rows []clientRow
	err := s.pg.Do(ctx, func() error {
		q := s.db.NewSelect().Model(&rows).Where("organisation_id = ?", organisation)
		if organisation.IsZero() {
			q = s.db.NewSelect().Model(&rows).Where("organisation_id IS NULL")
		}
		return q.Order("id").Scan(ctx)
	})
	all := make([]Client, len(rows))
	for i := range rows {
		all[i] = rows[i].client()
	}
	return all, err
}

var credentialsSQL = postgres.SQL(`
SELECT c.*, ARRAY(
    SELECT encode(x.secret_hash, 'hex') FROM client_secrets AS x WHERE x.client_id = c.id) AS secret_hashes
FROM api_clients AS c WHERE c.id = :id`)

// ClientCredentials returns the client with the data to verify its secrets; ErrNotFound if there is
// none.
func (s *Store) ClientCredentials(ctx context.Context, id ClientID) (ClientCredentials, error) {
	var row struct {
		clientRow
		SecretHashes []string `bun:"secret_hashes,array"`
	}
	err := s.pg.Get(ctx, credentialsSQL, postgres.Args{"id": id}, &row)
	if err != nil {
		return ClientCredentials{}, notFound(err, "client")
	}
	credentials := ClientCredentials{Client: row.client()}
	for _, text := range row.SecretHashes {
		hash, err := hex.DecodeString(text)
		if err != nil {
			return ClientCredentials{}, err
		}
		credentials.secretHashes = append(credentials.secretHashes, hash)
	}
	return credentials, nil
}

// SetClientScopes replaces the client's scopes. Tokens issued before keep at most these scopes.
func (s *Store) SetClientScopes(ctx context.Context, id ClientID, scopes []Scope) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		if err := checkScopes(row.OrganisationID, scopes); err != nil {
			return err
		}
		row.Scopes = scopeTexts(scopes)
		_, err := tx.NewUpdate().Model(row).Column("scopes").WherePK().Exec(ctx)
		return err
	})
}

// SetClientJWKS replaces the public keys for private_key_jwt; nil removes them. The caller has
// validated the JSON Web Key Set.
func (s *Store) SetClientJWKS(ctx context.Context, id ClientID, jwks json.RawMessage) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		row.JWKS = jwks
		_, err := tx.NewUpdate().Model(row).Column("jwks").WherePK().Exec(ctx)
		return err
	})
}

// DisableClient disables the client: it gets no new tokens, and its tokens are refused within a
// minute. It is idempotent.
func (s *Store) DisableClient(ctx context.Context, id ClientID) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		_, err := tx.NewUpdate().Model(row).Set("disabled_at = coalesce(disabled_at, svc_now())").WherePK().Exec(ctx)
		return err
	})
}

// EnableClient reverts DisableClient.
func (s *Store) EnableClient(ctx context.Context, id ClientID) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, row *clientRow) error {
		_, err := tx.NewUpdate().Model(row).Set("disabled_at = NULL").WherePK().Exec(ctx)
		return err
	})
}

// AddClientSecret creates a secret and returns its text, which is not stored. ErrTooManySecrets:
// the client has two.
func (s *Store) AddClientSecret(ctx context.Context, id ClientID) (string, error) {
	var secret string
	err := s.changeClient(ctx, id, func(tx postgres.Tx, _ *clientRow) error {
		live, err := tx.NewSelect().Model((*secretRow)(nil)).Where("client_id = ?", id).Count(ctx)
		if err != nil {
			return err
		}
		if live >= MaxClientSecrets {
			return ErrTooManySecrets
		}
		secret = newClientSecret()
		row := &secretRow{ClientID: id, SecretHash: hashClientSecret(secret)}
		_, err = tx.NewInsert().Model(row).Value("created_at", "svc_now()").Exec(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// ClientSecrets are the client's live secrets, oldest first.
func (s *Store) ClientSecrets(ctx context.Context, id ClientID) ([]ClientSecret, error) {
	var rows []secretRow
	err := s.pg.Do(ctx, func() error {
		return s.db.NewSelect().Model(&rows).Where("client_id = ?", id).Order("created_at", "secret_hash").Scan(ctx)
	})
	all := make([]ClientSecret, len(rows))
	for i, row := range rows {
		all[i] = ClientSecret{secretFingerprint(row.SecretHash), row.CreatedAt}
	}
	return all, err
}

// RemoveClientSecret removes the secret with the fingerprint at once. Tokens obtained with it stay
// valid. ErrNotFound: the client has no such secret.
func (s *Store) RemoveClientSecret(ctx context.Context, id ClientID, fingerprint string) error {
	return s.changeClient(ctx, id, func(tx postgres.Tx, _ *clientRow) error {
		result, err := tx.NewDelete().Model((*secretRow)(nil)).Where("client_id = ?", id).
			Where("encode(substring(secret_hash FROM 1 FOR 8), 'hex') = ?", fingerprint).Exec(ctx)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 {
			return notFoundError("client secret")
		}
		return err
	})
}

// changeClient runs do while it holds the lock of the client's row; ErrNotFound if there is none.
func (s *Store) changeClient(ctx context.Context, id ClientID, do func(tx postgres.Tx, row *clientRow) error) error {
	return s.pg.InTx(ctx, func(tx postgres.Tx) error {
		row := &clientRow{ID: id}
		if err := tx.NewSelect().Model(row).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return notFound(err, "client")
		}
		return do(tx, row)
	})
}

var useAssertionSQL = postgres.SQL(`
WITH expired AS (
    DELETE FROM client_assertions WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM client_assertions WHERE expires_at < ` + realNowExpr + `
        ORDER BY expires_at LIMIT 10 FOR UPDATE SKIP LOCKED))
)
INSERT INTO client_assertions (client_id, jti, expires_at) VALUES (:client, :jti, :expires_at) ON CONFLICT DO NOTHING`)

// UseAssertion records a client assertion's jti until it expires (real time). ErrAssertionUsed: the
// jti is recorded already. Each call also deletes a few expired records, which keeps the table
// small.
func (s *Store) UseAssertion(ctx context.Context, client ClientID, jti string, expiresAt Millis) error {
	digest := sha256.Sum256([]byte(jti)) // bounds the key's size
	used, err := s.pg.Run(ctx, useAssertionSQL, postgres.Args{
		"client": client, "jti": base64.RawURLEncoding.EncodeToString(digest[:]), "expires_at": expiresAt,
	})
	if err == nil && used == 0 {
		return ErrAssertionUsed
	}
	return err
}
