package models

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// secretRow is a row of the table client_secrets: a live secret of a client.
type secretRow struct {
	bun.BaseModel `bun:"table:client_secrets"`

	ClientID   ClientID `bun:"client_id,pk"`
	SecretHash []byte   `bun:"secret_hash,pk"` // SHA-256
	CreatedAt  Millis   `bun:"created_at"`
}

var credentialsSQL = postgres.SQL(`
SELECT c.*, ARRAY(
    SELECT encode(x.secret_hash, 'hex') FROM client_secrets AS x WHERE x.client_id = c.id) AS secret_hashes,
    ARRAY(SELECT u.fingerprint FROM credential_uses AS u
        WHERE u.client_id = c.id AND u.used_at > statement_timestamp() - interval '1 minute') AS recent_uses
FROM api_clients AS c WHERE c.id = :id`)

// ClientCredentials returns the client with the data to verify its secrets; ErrNotFound if there is
// none.
func (s *Store) ClientCredentials(ctx context.Context, id ClientID) (ClientCredentials, error) {
	var row struct {
		clientRow
		SecretHashes []string `bun:"secret_hashes,array"`
		RecentUses   []string `bun:"recent_uses,array"`
	}
	err := s.pg.Get(ctx, credentialsSQL, postgres.Args{"id": id}, &row)
	if err != nil {
		return ClientCredentials{}, wrap("read credentials", notFound(err, "client"))
	}
	credentials := ClientCredentials{Client: row.client(), recentUses: row.RecentUses}
	for _, text := range row.SecretHashes {
		hash, err := hex.DecodeString(text)
		if err != nil {
			return ClientCredentials{}, wrap("read credentials", err)
		}
		credentials.secretHashes = append(credentials.secretHashes, hash)
	}
	return credentials, nil
}

// AddClientSecret creates a secret of a client and returns its text, which is not stored. Errors:
// ErrNotFound; ErrTooManySecrets if the client has MaxClientSecrets already.
func (s *Store) AddClientSecret(ctx context.Context, id ClientID) (string, error) {
	var secret string
	err := s.changeClient(ctx, id, func(tx postgres.Tx, _ *clientRow) (err error) {
		live, err := tx.NewSelect().Model((*secretRow)(nil)).Where("client_id = ?", id).Count(ctx)
		if err != nil {
			return err
		}
		if live >= MaxClientSecrets {
			return ErrTooManySecrets
		}
		secret, err = insertClientSecret(ctx, tx, id)
		return err
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// insertClientSecret stores a new secret as its hash, and returns its text.
func insertClientSecret(ctx context.Context, tx postgres.Tx, id ClientID) (string, error) {
	secret := newClientSecret()
	row := &secretRow{ClientID: id, SecretHash: hashClientSecret(secret)}
	actFrom(ctx).with("secret", secretFingerprint(row.SecretHash))
	_, err := tx.NewInsert().Model(row).Value("created_at", "svc_now()").Exec(ctx)
	return secret, err
}

// ClientSecrets returns the client's live secrets, oldest first.
func (s *Store) ClientSecrets(ctx context.Context, id ClientID) ([]ClientSecret, error) {
	var rows []secretRow
	err := s.pg.Read(ctx, func(on bun.IDB) error {
		return on.NewSelect().Model(&rows).Where("client_id = ?", id).Order("created_at", "secret_hash").Scan(ctx)
	})
	all := make([]ClientSecret, len(rows))
	for i, row := range rows {
		all[i] = ClientSecret{secretFingerprint(row.SecretHash), row.CreatedAt}
	}
	return all, wrap("read client secrets", err)
}

// RemoveClientSecret removes the secret with the fingerprint at once. Tokens obtained with it are
// refused within 30 seconds. ErrNotFound: the client has no such secret.
func (s *Store) RemoveClientSecret(ctx context.Context, id ClientID, fingerprint string) error {
	actFrom(ctx).with("secret", fingerprint)
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

var recordUseSQL = postgres.SQL(`
INSERT INTO credential_uses AS u (client_id, fingerprint, used_at) VALUES (:client, :fingerprint, statement_timestamp())
ON CONFLICT (client_id, fingerprint) DO UPDATE SET used_at = excluded.used_at
WHERE u.used_at <= excluded.used_at - interval '1 minute'`)

// RecordCredentialUse records the present server time as the last use of a client's credential,
// unless a use within the last minute is recorded. fingerprint is the fingerprint of a secret, or
// the thumbprint of a public key.
func (s *Store) RecordCredentialUse(ctx context.Context, client ClientID, fingerprint string) error {
	_, err := s.pg.Run(ctx, recordUseSQL, postgres.Args{"client": client, "fingerprint": fingerprint})
	return wrap("record the use of a credential", err)
}

var credentialUsesSQL = postgres.SQL(`SELECT fingerprint, used_at FROM credential_uses WHERE client_id = :client`)

// CredentialUses returns when a client last used each of its credentials, by fingerprint. The times
// are server time, and up to a minute too early. Removed credentials are included.
func (s *Store) CredentialUses(ctx context.Context, client ClientID) (map[string]time.Time, error) {
	var rows []struct {
		Fingerprint string
		UsedAt      time.Time
	}
	err := s.pg.Select(ctx, credentialUsesSQL, postgres.Args{"client": client}, &rows)
	uses := make(map[string]time.Time, len(rows))
	for _, r := range rows {
		uses[r.Fingerprint] = r.UsedAt
	}
	return uses, wrap("uses of credentials", err)
}
