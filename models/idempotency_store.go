package models

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
)

var (
	lockIdempotencyKeySQL   = postgres.SQL(`SELECT pg_try_advisory_xact_lock(:lock)`)
	recallIdempotencyKeySQL = postgres.SQL(`
SELECT fingerprint, resource_id, created_at > svc_now() - :life FROM idempotency_keys
WHERE client_id = :client AND path = :path AND key = :key`)
	recordIdempotencyKeySQL = postgres.SQL(`
INSERT INTO idempotency_keys (client_id, path, key, fingerprint, resource_id, created_at)
VALUES (:client, :path, :key, :fingerprint, :resource, svc_now())
ON CONFLICT (client_id, path, key) DO UPDATE SET fingerprint = excluded.fingerprint,
    resource_id = excluded.resource_id, created_at = excluded.created_at`)
)

// idempotent runs effect at most once for an idempotency key, and records the key in the same
// database transaction. effect returns the id of the resource that it makes. For a later request
// with the key, idempotent returns that id, and replayed is true. If effect fails, no key is
// recorded, and the request may be repeated. A key older than IdempotencyKeyLife counts as new. If
// key is nil, effect always runs.
//
// Errors: ErrIdempotencyKeyReused if the earlier request had another body;
// ErrIdempotencyKeyInFlight while another database transaction holds the key.
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
	_, err = tx.Run(ctx, recordIdempotencyKeySQL, postgres.Args{
		"client": key.ClientID, "path": key.Path, "key": key.Key, "fingerprint": key.Fingerprint, "resource": id,
	})
	return id, false, err
}

// lockIdempotencyKey locks the key until the database transaction ends. ErrIdempotencyKeyInFlight:
// another database transaction holds the lock.
func lockIdempotencyKey(ctx context.Context, tx postgres.Tx, key *IdempotencyKey) error {
	var locked bool
	if err := tx.Get(ctx, lockIdempotencyKeySQL, postgres.Args{"lock": key.lock()}, &locked); err != nil {
		return err
	}
	if !locked {
		return ErrIdempotencyKeyInFlight
	}
	return nil
}

// recallIdempotencyKey returns the id of the resource that an earlier request with the key made, if
// there is one. It must run after the lock, in a statement of its own, so that it sees the commit
// of the previous holder. ErrIdempotencyKeyReused: the earlier request had another body.
func recallIdempotencyKey[N Noun](
	ctx context.Context, tx postgres.Tx, key *IdempotencyKey,
) (id ID[N], found bool, err error) {
	var fingerprint []byte
	var live bool
	err = tx.Get(ctx, recallIdempotencyKeySQL, postgres.Args{
		"client": key.ClientID, "path": key.Path, "key": key.Key, "life": IdempotencyKeyLife.Milliseconds(),
	}, &fingerprint, &id, &live)
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
