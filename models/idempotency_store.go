package models

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// idempotent runs effect once for a key, in effect's own transaction. Later requests with the same
// body get the resource of the first (replayed). A failed request leaves nothing and may be sent
// again. A key older than IdempotencyKeyLife counts as new. Without a key, effect simply runs.
//
// Errors: ErrIdempotencyKeyReused for another body; ErrIdempotencyKeyInFlight while another
// transaction holds the key.
func idempotent[N Noun](
	ctx context.Context, tx postgres.Tx, key *IdempotencyKey, effect func() (ID[N], error),
) (id ID[N], replayed bool, err error) {
	if key == nil {
		id, err = effect()
		return id, false, err
	}
	if err := lockIdempotencyKey(ctx, tx, key); err != nil {
		return id, false, err
	}
	if id, replayed, err = recallIdempotencyKey[N](ctx, tx, key); err != nil || replayed {
		return id, replayed, err
	}
	if id, err = effect(); err != nil {
		return id, false, err
	}
	_, err = tx.Tx.Tx.ExecContext(ctx, `
		INSERT INTO idempotency_keys (client_id, path, key, fingerprint, resource_id, created_at)
		VALUES ($1, $2, $3, $4, $5, svc_now())
		ON CONFLICT (client_id, path, key) DO UPDATE SET fingerprint = excluded.fingerprint,
			resource_id = excluded.resource_id, created_at = excluded.created_at`,
		key.ClientID, key.Path, key.Key, key.Fingerprint, id)
	return id, false, err
}

// lockIdempotencyKey locks the key until the transaction ends. ErrIdempotencyKeyInFlight: another
// transaction holds it.
func lockIdempotencyKey(ctx context.Context, tx postgres.Tx, key *IdempotencyKey) error {
	var taken bool
	if err := tx.Tx.Tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, key.lock()).Scan(&taken); err != nil {
		return err
	}
	if !taken {
		return ErrIdempotencyKeyInFlight
	}
	return nil
}

// recallIdempotencyKey must be its own statement after the lock, so that it sees the commit of the
// previous holder.
func recallIdempotencyKey[N Noun](
	ctx context.Context, tx postgres.Tx, key *IdempotencyKey,
) (id ID[N], found bool, err error) {
	var fingerprint []byte
	var live bool
	err = tx.Tx.Tx.QueryRowContext(ctx, `
		SELECT fingerprint, resource_id, created_at > svc_now() - $4 FROM idempotency_keys
		WHERE client_id = $1 AND path = $2 AND key = $3`,
		key.ClientID, key.Path, key.Key, IdempotencyKeyLife.Milliseconds()).Scan(&fingerprint, &id, &live)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !live:
		return ID[N]{}, false, nil
	case err != nil:
		return id, false, err
	case !bytes.Equal(fingerprint, key.Fingerprint):
		return id, false, ErrIdempotencyKeyReused
	}
	return id, true, nil
}

// PurgeIdempotencyKeys deletes at most limit keys past their life and returns their number.
func (s *Store) PurgeIdempotencyKeys(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.Do(ctx, func() error {
		res, err := s.db.DB.ExecContext(ctx, `
			DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM idempotency_keys WHERE created_at <= svc_now() - $1
				ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`,
			IdempotencyKeyLife.Milliseconds(), limit)
		if err != nil {
			return err
		}
		rows, err := res.RowsAffected()
		n = int(rows)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("models: purge idempotency keys: %w", err)
	}
	return n, nil
}
