package models

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"partnerbilling/models/postgres"
)

var (
	deploymentSQL = postgres.SQL(`SELECT environment, rail, rail_id, webhook_loopback FROM deployment`)
	// joinDeploymentSQL returns no row if the database belongs to another deployment.
	joinDeploymentSQL = postgres.SQL(`
INSERT INTO deployment AS d (environment, rail, rail_id, webhook_loopback)
VALUES (:environment, nullif(:rail, ''), :rail_id, :webhook_loopback)
ON CONFLICT (only_row) DO UPDATE SET
    rail = coalesce(d.rail, excluded.rail),
    rail_id = CASE WHEN d.rail IS NULL THEN excluded.rail_id ELSE d.rail_id END,
    webhook_loopback = d.webhook_loopback OR excluded.webhook_loopback
WHERE d.environment = excluded.environment
  AND (excluded.rail IS NULL OR d.rail IS NULL OR (d.rail, d.rail_id) = (excluded.rail, excluded.rail_id))
RETURNING environment, rail, rail_id, webhook_loopback`)
	// railInDoubtSQL locks the deployment, and reports whether its rail may know debits whose
	// outcome the database does not.
	railInDoubtSQL = postgres.SQL(`
WITH locked AS (SELECT FROM deployment FOR UPDATE)
SELECT NOT f.certain
    OR EXISTS (SELECT FROM batches WHERE settled_at IS NULL AND epoch < f.epoch)
    OR EXISTS (SELECT FROM payment_intents WHERE state <> 'final' AND epoch < f.epoch)
    OR EXISTS (SELECT FROM batch_rows WHERE state = 'inProgress' OR in_doubt OR state = 'pending' AND attempts > 0)
    OR EXISTS (SELECT FROM payment_intents WHERE state = 'pending' OR in_doubt)
FROM locked, current_epoch(:rail_memory) f`)
	replaceRailSQL = postgres.SQL(`UPDATE deployment SET rail = :rail, rail_id = :rail_id`)
	// restartReconciliationSQL makes the comparison of ledger and rail begin at the present.
	restartReconciliationSQL = postgres.SQL(`
WITH gone AS (DELETE FROM reconciliation_differences)
UPDATE reconciliation SET compared_to = now, since = now FROM (SELECT now FROM service_now) AS clock`)
)

// Deployment returns the database's deployment. ErrNotFound: no process has joined yet.
func (s *Store) Deployment(ctx context.Context) (d Deployment, err error) {
	err = s.pg.Get(ctx, deploymentSQL, nil, &d)
	return d, wrap("read the deployment", notFound(err, "deployment"))
}

// JoinDeployment joins a starting process of deployment own to the database, and returns the
// database's deployment. The first process writes the environment. The first process with a rail
// writes the rail. Any process can allow webhooks to loopback addresses. ErrOtherDeployment: own
// does not match the database; see Deployment.Check.
func (s *Store) JoinDeployment(ctx context.Context, own Deployment) (d Deployment, err error) {
	err = s.pg.Get(ctx, joinDeploymentSQL, postgres.Args{
		"environment": own.Environment, "rail": own.Rail, "rail_id": own.RailID,
		"webhook_loopback": own.WebhookLoopback,
	}, &d)
	if !errors.Is(err, sql.ErrNoRows) {
		return d, wrap("join the deployment", err)
	}
	if d, err = s.Deployment(ctx); err != nil {
		return d, err
	}
	return d, d.Check(own)
}

// ReplaceRail changes the database's rail, and restarts the comparison of ledger and rail. No
// worker may run meanwhile. Errors: ErrNotFound if no process has joined yet; ErrInDoubt if debits
// or payments on the old rail are, or may be, in doubt.
//
// For RailMemory after a promotion or a restore, ReplaceRail always returns ErrInDoubt. The
// database may have lost batches; if they are submitted again, only the old rail knows their rail
// keys.
func (s *Store) ReplaceRail(ctx context.Context, rail, railID string) error {
	actFrom(ctx).about(SubjectRail, strings.TrimSpace(rail+" "+railID))
	err := s.act(ctx, func(tx postgres.Tx) error {
		var inDoubt bool
		err := tx.Get(ctx, railInDoubtSQL, postgres.Args{"rail_memory": RailMemory.Milliseconds()}, &inDoubt)
		if err != nil {
			return notFound(err, "deployment")
		}
		if inDoubt {
			return ErrInDoubt
		}
		if _, err = tx.Run(ctx, replaceRailSQL, postgres.Args{"rail": rail, "rail_id": railID}); err != nil {
			return err
		}
		_, err = tx.Run(ctx, restartReconciliationSQL, nil) // the new rail knows none of the old one's debits
		return err
	})
	return wrap("replace the rail", err)
}
