package models

import (
	"context"
	_ "embed" // statements
	"time"

	"partnerbilling/models/postgres"
)

var (
	//go:embed batch_drop.sql
	dropBatchesText string
	dropBatchesSQL  = postgres.SQL(dropBatchesText)

	//go:embed webhook_drop.sql
	dropWebhookEventsText string
	dropWebhookEventsSQL  = postgres.SQL(dropWebhookEventsText)

	purgeIdempotencyKeysSQL = postgres.SQL(`
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at <= svc_now() - :age
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
	dropPaymentIntentsSQL = postgres.SQL(`
DELETE FROM payment_intents WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM payment_intents WHERE final_at <= svc_now() - :age AND NOT in_doubt
    ORDER BY final_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
	forgetPartiesSQL = postgres.SQL(`
UPDATE customer_links SET party = NULL WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM customer_links
    WHERE revoked_at <= svc_now() - :age AND state = 'revoked' AND party IS NOT NULL
    ORDER BY revoked_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
	dropAlertsSQL = postgres.SQL(`
DELETE FROM alerts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM alerts WHERE closed_at <= svc_now() - :age
    ORDER BY closed_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
	dropAssertionsSQL = postgres.SQL(`
DELETE FROM client_assertions WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM client_assertions WHERE expires_at < ` + realNowExpr + ` - :age
    ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
	dropSandboxDebitsSQL = postgres.SQL(`
DELETE FROM sandbox_debits WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM sandbox_debits WHERE changed_at <= svc_now() - :age AND status <> 'undecided'
    ORDER BY changed_at LIMIT :limit FOR UPDATE SKIP LOCKED))`)
)

// removeOld runs a statement that removes at most limit items older than age, and returns their
// number.
func (s *Store) removeOld(
	ctx context.Context, what string, statement postgres.Statement, age time.Duration, limit int,
) (int, error) {
	n, err := s.pg.Run(ctx, statement, postgres.Args{"age": age.Milliseconds(), "limit": limit})
	return n, wrap(what, err)
}

// batchesDropped is the maximum number of batches that DropOldBatches deletes at once.
const batchesDropped = 50

// DropOldBatches deletes at most batchesDropped settled batches past BatchRetention. Most rows stay
// until DropOldPartitions drops their partition. If the sandbox's clock was moved, a batch may have
// its rows in a partition that is not dropped soon. DropOldBatches deletes such rows too: at most
// limit in a call, unless a single batch has more. It returns limit if it has deleted a batch, so
// that the caller calls again, else 0.
func (s *Store) DropOldBatches(ctx context.Context, limit int) (int, error) {
	left, err := s.leftToPartitions(ctx, "batch_rows")
	if err != nil {
		return 0, err
	}
	var dropped int
	err = s.pg.Get(ctx, dropBatchesSQL, postgres.Args{
		"retention": BatchRetention.Milliseconds(), "limit": limit, "batches": batchesDropped,
		"lowest": left.lowest, "beyond": left.beyond,
	}, &dropped)
	if dropped > 0 {
		dropped = limit
	}
	return dropped, wrap("drop old batches", err)
}

// DropOldPaymentIntents deletes at most limit payment intents that have been final for longer than
// the retention, and returns their number. Their ledger entries remain.
func (s *Store) DropOldPaymentIntents(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "drop old payment intents", dropPaymentIntentsSQL, s.retention.Payments, limit)
}

// DropOldWebhookEvents deletes at most limit ended events past their retention, with their
// attempts, and returns their number. It leaves the events that DropOldPartitions removes together
// with their partition.
func (s *Store) DropOldWebhookEvents(ctx context.Context, limit int) (int, error) {
	left, err := s.leftToPartitions(ctx, "webhook_events")
	if err != nil {
		return 0, err
	}
	n, err := s.pg.Run(ctx, dropWebhookEventsSQL, postgres.Args{
		"age": s.retention.Webhooks.Milliseconds(), "limit": limit, "lowest": left.lowest, "beyond": left.beyond,
	})
	return n, wrap("drop old webhook events", err)
}

// ForgetOldParties removes customer and agreement from at most limit links that have been revoked
// for longer than the retention, and returns their number.
func (s *Store) ForgetOldParties(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "forget old parties", forgetPartiesSQL, s.retention.Links, limit)
}

// DropClosedAlerts deletes at most limit alerts that have been closed for longer than the
// retention, and returns their number.
func (s *Store) DropClosedAlerts(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "drop closed alerts", dropAlertsSQL, s.retention.Alerts, limit)
}

// PurgeIdempotencyKeys deletes at most limit keys past IdempotencyKeyLife and returns their number.
func (s *Store) PurgeIdempotencyKeys(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "purge idempotency keys", purgeIdempotencyKeysSQL, IdempotencyKeyLife, limit)
}

// DropExpiredAssertions deletes at most limit client assertions that have expired in real time, and
// returns their number.
func (s *Store) DropExpiredAssertions(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "drop expired assertions", dropAssertionsSQL, 0, limit)
}

// DropOldSandboxDebits deletes at most limit debits of the sandbox rail that were decided or
// cancelled longer ago than the retention, and returns their number.
func (s *Store) DropOldSandboxDebits(ctx context.Context, limit int) (int, error) {
	return s.removeOld(ctx, "drop old sandbox debits", dropSandboxDebitsSQL, s.retention.SandboxRail, limit)
}
