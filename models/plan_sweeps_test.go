package models_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"partnerbilling/models"
)

func (p *planned) runSweeps() {
	s := p.store
	for _, queue := range []models.Queue{models.QueueCheckout, models.QueueDebits, models.QueueWebhooks,
		models.QueueSweeps} {
		dispatch := models.Dispatch{Queue: queue, Limit: 5, InFlight: 100_000, Total: 100_000}
		var due []models.Task
		p.call("ClaimDue", func(ctx context.Context) (err error) {
			due, err = s.ClaimDue(ctx, dispatch)
			return err
		})
		p.call("ConfirmDispatched", func(ctx context.Context) error { return s.ConfirmDispatched(ctx, due) })
		p.call("ReleaseTasks", func(ctx context.Context) error { return s.ReleaseTasks(ctx, due) })
		p.call("InFlight", func(ctx context.Context) error { return only(s.InFlight(ctx, queue)) })
	}
	task := models.TaskID(uuid.New())
	p.call("ExtendTask", func(ctx context.Context) error { return s.ExtendTask(ctx, task) })
	p.call("FinishTask", func(ctx context.Context) error { return s.FinishTask(ctx, task) })
	p.call("RepeatTask", func(ctx context.Context) error { return s.RepeatTask(ctx, task, time.Second) })
	p.call("ReclaimLost", func(ctx context.Context) error { return only(s.ReclaimLost(ctx, models.AnyTime, 10)) })
	p.call("ReclaimEarly", func(ctx context.Context) error { return only(s.ReclaimEarly(ctx, 10)) })
	p.call("Backlogs", func(ctx context.Context) error { return only(s.Backlogs(ctx)) })
	p.call("StartRecurring", func(ctx context.Context) error {
		return only(s.StartRecurring(ctx, models.TaskCloseBatches, time.Hour))
	})
	p.call("MakePartitions", s.MakePartitions)
	p.call("ReleaseWebhooks", func(ctx context.Context) error { return only(s.ReleaseWebhooks(ctx)) })
	p.call("ExpireInvitations", func(ctx context.Context) error { return only(s.ExpireInvitations(ctx, 5)) })
	p.call("ExpirePaymentIntents", func(ctx context.Context) error { return only(s.ExpirePaymentIntents(ctx, 5)) })
	p.call("CloseUnsentRows", func(ctx context.Context) error { return notFoundIsFine(only(s.CloseUnsentRows(ctx))) })
	p.call("CloseOverdueBatch", func(ctx context.Context) error {
		return notFoundIsFine(only(s.CloseOverdueBatch(ctx)))
	})
	for name, step := range map[string]func(context.Context, int) (int, error){
		"DropOldBatches": s.DropOldBatches, "DropOldPaymentIntents": s.DropOldPaymentIntents,
		"DropOldWebhookEvents": s.DropOldWebhookEvents, "ForgetOldParties": s.ForgetOldParties,
		"DropClosedAlerts": s.DropClosedAlerts, "PurgeIdempotencyKeys": s.PurgeIdempotencyKeys,
		"DropExpiredAssertions": s.DropExpiredAssertions, "DropOldSandboxDebits": s.DropOldSandboxDebits,
		"DropOldDifferences": s.DropOldDifferences, "DropOldPartitions": s.DropOldPartitions,
	} {
		p.call(name, func(ctx context.Context) error { return only(step(ctx, 5)) })
	}
}

func (p *planned) runReconciliation() {
	s := p.store
	now := models.MillisOf(time.Now())
	payment := models.PaymentRailKey(models.PaymentIntentID(uuid.New()))
	keys := []string{"r1_" + strings.Repeat("0", 64), payment, p.name("key")}
	var state models.Reconciliation
	p.call("Reconciliation", func(ctx context.Context) (err error) {
		state, err = s.Reconciliation(ctx)
		return err
	})
	p.call("LedgerBetween", func(ctx context.Context) error {
		return only(s.LedgerBetween(ctx, now.Add(-time.Minute), now, models.LedgerPosition{}, 10))
	})
	p.call("LedgerOf", func(ctx context.Context) error { return only(s.LedgerOf(ctx, keys)) })
	p.call("DebitSubjects", func(ctx context.Context) error { return only(s.DebitSubjects(ctx, keys)) })
	filled := models.NewBatchKey(p.site.ID, "batch 500", 1).Row("row 5") // of fillTables
	p.call("DebitSubjects", func(ctx context.Context) error {
		return only(s.DebitSubjects(ctx, []string{filled}))
	})
	p.call("DecidedKeys", func(ctx context.Context) error { return only(s.DecidedKeys(ctx, keys)) })
	p.call("RecordComparison", func(ctx context.Context) error {
		return only(s.RecordComparison(ctx, models.Comparison{
			From: state.ComparedTo, To: state.ComparedTo + 1, Resolved: []string{p.name("none")},
			Found: []models.Difference{{RailKey: p.name("key"), Kind: models.DifferenceInFlight}},
		}))
	})
	p.call("AuditPass", func(ctx context.Context) error { return only(s.AuditPass(ctx)) })
	p.call("AuditWindow", func(ctx context.Context) error {
		hours := now.Add(-500 * time.Hour) // fillTables submits a batch an hour there
		return only(s.AuditWindow(ctx, hours.Add(-30*time.Minute), hours.Add(30*time.Minute)))
	})
	p.call("MoveAudit", func(ctx context.Context) error {
		return only(s.MoveAudit(ctx, models.AuditPass{}, 0, time.Hour, nil))
	})
	p.call("DueDifferences", func(ctx context.Context) error { return only(s.DueDifferences(ctx, 10)) })
}

func notFoundIsFine(err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return nil
	}
	return err
}

// only3 drops the two values of a call.
func only3[A, B any](_ A, _ B, err error) error { return err }
