package models

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// keyRow is a row of the table service_keys: a Key with its secret sealed under a master key.
type keyRow struct {
	bun.BaseModel `bun:"table:service_keys"`

	ID        KeyID      `bun:"id,pk"`
	Purpose   KeyPurpose `bun:"purpose"`
	Sealed    []byte     `bun:"sealed"`
	CreatedAt Millis     `bun:"created_at"`
	ActiveAt  Millis     `bun:"active_at"`
	RetiredAt Millis     `bun:"retired_at,nullzero"`
}

// aad returns the additional data that binds the sealed secret to this row.
func (r *keyRow) aad() []byte {
	return []byte("service_keys/" + string(r.Purpose) + "/" + r.ID.String())
}

// open returns the row as a Key. seal.ErrOpen: the ring cannot open the secret.
func (r *keyRow) open(ring *seal.Keyring) (Key, error) {
	secret, err := ring.Open(r.Sealed, r.aad())
	if err != nil {
		return Key{}, fmt.Errorf("models: open key %s: %w", r.ID, err)
	}
	return Key{r.ID, r.Purpose, secret, r.CreatedAt, r.ActiveAt, r.RetiredAt}, nil
}

// newKeyRow returns a row with a new random secret, which it does not store.
func newKeyRow(ring *seal.Keyring, purpose KeyPurpose, now, activeAt Millis) *keyRow {
	secret := make([]byte, KeySecretSize)
	rand.Read(secret) // never fails
	row := &keyRow{ID: NewID[keyNoun](), Purpose: purpose, CreatedAt: now, ActiveAt: activeAt}
	row.Sealed = ring.Seal(secret, row.aad())
	return row
}

// EnsureKeys makes sure that every purpose has an active key, and a key without a RetiredAt; one
// key can be both. Concurrent calls by several processes create a missing key once.
func (s *Store) EnsureKeys(ctx context.Context, ring *seal.Keyring) error {
	return s.changeKeys(ctx, func(tx postgres.Tx, now Millis) error {
		for _, purpose := range KeyPurposes {
			if err := ensureKey(ctx, tx, ring, purpose, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// ensureKey does for one purpose what EnsureKeys does.
func ensureKey(ctx context.Context, tx postgres.Tx, ring *seal.Keyring, purpose KeyPurpose, now Millis) error {
	live, err := liveKeys(ctx, tx, purpose, now)
	if err != nil {
		return err
	}
	active := slices.ContainsFunc(live, func(r *keyRow) bool { return r.ActiveAt <= now })
	lasting := slices.IndexFunc(live, func(r *keyRow) bool { return r.RetiredAt == 0 })
	switch {
	case active && lasting >= 0:
		return nil
	case lasting >= 0: // no key is active, so the new key does not wait for its ActiveAt
		_, err = tx.NewUpdate().Model(live[lasting]).Set("active_at = ?", now).WherePK().Exec(ctx)
		return err
	}
	_, err = tx.NewInsert().Model(newKeyRow(ring, purpose, now, now)).Exec(ctx)
	return err
}

// RotateKey creates a new key of a purpose and returns its ID. The new key becomes active after
// KeyActivationDelay. The previous key retires when everything that it has made has expired.
// ErrKeyRotating: the purpose has two live keys.
func (s *Store) RotateKey(ctx context.Context, ring *seal.Keyring, purpose KeyPurpose) (KeyID, error) {
	var id KeyID
	act := actFrom(ctx).about(SubjectKey, "").with("purpose", purpose)
	err := s.changeKeys(ctx, func(tx postgres.Tx, now Millis) error {
		live, err := liveKeys(ctx, tx, purpose, now)
		if err != nil {
			return err
		}
		if len(live) > 1 {
			return fmt.Errorf("%w: %s", ErrKeyRotating, purpose)
		}
		activeAt := now
		if len(live) == 1 {
			activeAt = now.Add(KeyActivationDelay)
			if err := retireKey(ctx, tx, live[0].ID, activeAt.Add(purpose.Lifetime())); err != nil {
				return err
			}
		}
		row := newKeyRow(ring, purpose, now, activeAt)
		id = row.ID
		act.about(SubjectKey, id.String())
		_, err = tx.NewInsert().Model(row).Exec(ctx)
		return err
	})
	return id, err
}

// RetireKey retires a leaked key at once: everything that it has made becomes invalid. If its
// purpose then lacks a key, RetireKey makes or activates one, as EnsureKeys does. ErrNotFound: the
// key is unknown or has retired.
func (s *Store) RetireKey(ctx context.Context, ring *seal.Keyring, id KeyID) error {
	act := actFrom(ctx).about(SubjectKey, id.String())
	return s.changeKeys(ctx, func(tx postgres.Tx, now Millis) error {
		row := &keyRow{ID: id}
		err := tx.NewSelect().Model(row).WherePK().Where("coalesce(retired_at, ?) > ?", now+1, now).Scan(ctx)
		if err != nil {
			return notFound(err, "key")
		}
		act.with("purpose", row.Purpose)
		if err := retireKey(ctx, tx, id, now); err != nil {
			return err
		}
		return ensureKey(ctx, tx, ring, row.Purpose, now)
	})
}

// retireKey sets the time at which a key retires.
func retireKey(ctx context.Context, tx postgres.Tx, id KeyID, at Millis) error {
	_, err := tx.NewUpdate().Model(&keyRow{ID: id}).Set("retired_at = ?", at).WherePK().Exec(ctx)
	return err
}

// liveKeys returns the keys of a purpose that have not retired, newest ActiveAt first.
func liveKeys(ctx context.Context, tx postgres.Tx, purpose KeyPurpose, now Millis) ([]*keyRow, error) {
	var rows []*keyRow
	err := tx.NewSelect().Model(&rows).Where("purpose = ?", purpose).
		Where("coalesce(retired_at, ?) > ?", now+1, now).Order("active_at DESC", "id DESC").Scan(ctx)
	return rows, err
}

// ResealKeys encrypts every service key again under the ring's first master key. It returns the
// number of keys that it changed. Afterwards no service key needs the ring's other master keys.
func (s *Store) ResealKeys(ctx context.Context, ring *seal.Keyring) (changed int, err error) {
	actFrom(ctx).about(SubjectMasterKey, "")
	err = s.changeKeys(ctx, func(tx postgres.Tx, _ Millis) error {
		var rows []*keyRow
		if err := tx.NewSelect().Model(&rows).Scan(ctx); err != nil {
			return err
		}
		changed = 0
		for _, row := range rows {
			resealed, differs, err := ring.Reseal(row.Sealed, row.aad())
			if err != nil {
				return fmt.Errorf("reseal key %s: %w", row.ID, err)
			}
			if !differs {
				continue
			}
			changed++
			if _, err := tx.NewUpdate().Model(row).Set("sealed = ?", resealed).WherePK().Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return changed, err
}

// changeKeys runs do as Store.act does, under a lock that admits one caller at a time. Two
// processes therefore never both create a missing key. now is the database's real time.
func (s *Store) changeKeys(ctx context.Context, do func(tx postgres.Tx, now Millis) error) error {
	return wrap("change keys", s.act(ctx, func(tx postgres.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext('service_keys'))"); err != nil {
			return err
		}
		var now Millis
		if err := tx.NewSelect().ColumnExpr(realNowExpr).Scan(ctx, &now); err != nil {
			return err
		}
		return do(tx, now)
	}))
}

// realNowExpr is the SQL expression for the database's real time in Unix milliseconds, without the
// offset of the sandbox's clock.
const realNowExpr = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"

var serviceKeysSQL = postgres.SQL(`
SELECT clock.now, k.id, k.purpose, k.sealed, k.created_at, k.active_at, k.retired_at
FROM (SELECT ` + realNowExpr + ` AS now) AS clock
JOIN service_keys AS k ON coalesce(k.retired_at > clock.now, true)
ORDER BY k.active_at DESC, k.id DESC`)

// serviceKeys reads and opens every key that has not retired, newest ActiveAt first. It also
// returns the database's real time; 0 if there is no key.
func (s *Store) serviceKeys(ctx context.Context, ring *seal.Keyring) ([]Key, Millis, error) {
	var rows []struct {
		keyRow
		Now Millis `bun:"now"`
	}
	err := s.pg.Select(ctx, serviceKeysSQL, nil, &rows)
	if err != nil || len(rows) == 0 {
		return nil, 0, wrap("read keys", err)
	}
	keys := make([]Key, len(rows))
	for i := range rows {
		if keys[i], err = rows[i].open(ring); err != nil {
			return nil, 0, err
		}
	}
	return keys, rows[0].Now, nil
}
