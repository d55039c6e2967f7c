package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"fmt"
	"strings"

	"partnerbilling/models/postgres"
)

// The errors of paying and cancelling that callers distinguish.
var (
	// ErrIntentExpired: the payment intent expired before a payment began.
	ErrIntentExpired = errors.New("models: payment intent expired")
	// ErrIntentCancelled: the partner has cancelled the payment intent.
	ErrIntentCancelled = errors.New("models: payment intent cancelled")
	// ErrIntentTaken: another customer is paying, or has paid.
	ErrIntentTaken = errors.New("models: payment intent taken by another customer")
	// ErrIntentEnded: another customer's payment has ended. It is an ErrIntentTaken, too.
	ErrIntentEnded = fmt.Errorf("%w: ended", ErrIntentTaken)
	// ErrIntentNotCancellable: a payment has begun, or the payment intent has ended otherwise.
	ErrIntentNotCancellable = errors.New("models: payment intent cannot be cancelled")
)

// intentColumns are the columns of payment_intents p that a PaymentIntent holds.
const intentColumns = `p.site_id, p.id, p.organisation_id, p.code, p.amount, p.currency, p.order_id, p.line_items,
    p.return_url, p.qr_code_format, p.state, p.transaction_status, p.status_reason, p.created_at, p.expires_at,
    p.final_at, p.trace_id, p.transaction_id, p.party, p.discounts, p.amount_charged,
    p.started_at`

// foundIntent is a payment intent as stored.
type foundIntent struct {
	PaymentIntent
	Overdue bool // past its expiry, and not ended yet
}

var (
	intentByIDSQL = postgres.SQL(`
SELECT ` + intentColumns + `, p.state = 'created' AND p.expires_at <= svc_now() AS overdue
FROM payment_intents p WHERE p.site_id = :site AND p.id = :id`)
	intentByCodeSQL = postgres.SQL(`
SELECT ` + intentColumns + `, p.state = 'created' AND p.expires_at <= svc_now() AS overdue,
    o.name AS organisation_name, coalesce(o.colour, '') AS organisation_colour, s.name AS site_name
FROM payment_intents p JOIN sites s ON s.id = p.site_id JOIN organisations o ON o.id = p.organisation_id
WHERE p.code = :code`)
	intentSiteSQL = postgres.SQL(`
SELECT site_id FROM payment_intents WHERE id = :id AND organisation_id = :organisation`)
)

// PaymentIntent returns an intent of the Site; ErrNotFound if there is none. It expires an overdue
// intent before it answers, so that no concurrent payment contradicts the answer.
func (s *Store) PaymentIntent(ctx context.Context, site SiteID, id PaymentIntentID) (PaymentIntent, error) {
	found, err := intentByID(ctx, s.pg, site, id)
	intent := found.PaymentIntent
	if err == nil && found.Overdue {
		intent, err = s.expireIntent(ctx, site, id)
	}
	return intent, wrap("payment intent", err)
}

// PaymentIntentByCode returns the intent with a code, as PaymentIntent does, and its payee. The
// customer app knows the code from the QR code.
func (s *Store) PaymentIntentByCode(ctx context.Context, code string) (PaymentIntent, Payee, error) {
	var found struct {
		foundIntent
		Payee
	}
	err := s.pg.Get(ctx, intentByCodeSQL, postgres.Args{"code": code}, &found)
	intent := found.PaymentIntent
	if err == nil && found.Overdue {
		intent, err = s.expireIntent(ctx, intent.SiteID, intent.ID)
	}
	return intent, found.Payee, wrap("payment intent by code", notFound(err, "payment intent"))
}

// OrganisationPaymentIntent returns an intent of any Site of the organisation, as PaymentIntent
// does.
func (s *Store) OrganisationPaymentIntent(
	ctx context.Context, organisation OrganisationID, id PaymentIntentID,
) (PaymentIntent, error) {
	var site SiteID
	err := s.pg.Get(ctx, intentSiteSQL, postgres.Args{"organisation": organisation, "id": id}, &site)
	if err != nil {
		return PaymentIntent{}, wrap("payment intent of an organisation", notFound(err, "payment intent"))
	}
	return s.PaymentIntent(ctx, site, id)
}

// intentByID reads an intent of a Site in its stored state; ErrNotFound if there is none.
func intentByID(
	ctx context.Context, on postgres.Session, site SiteID, id PaymentIntentID,
) (found foundIntent, err error) {
	err = on.Get(ctx, intentByIDSQL, postgres.Args{"site": site, "id": id}, &found)
	return found, notFound(err, "payment intent")
}

var (
	//go:embed payment_intent_end_unpaid.sql
	endUnpaidText string

	cancelIntentSQL = endUnpaidSQL(`
    SELECT site_id, id FROM payment_intents
    WHERE site_id = :site AND id = :id AND state = 'created' AND expires_at > svc_now() FOR UPDATE`)
	expireIntentSQL = endUnpaidSQL(`
    SELECT site_id, id FROM payment_intents
    WHERE site_id = :site AND id = :id AND state = 'created' AND expires_at <= svc_now() FOR UPDATE`)
	expireIntentsSQL = endUnpaidSQL(`
    SELECT site_id, id FROM payment_intents WHERE state = 'created' AND expires_at <= svc_now()
    ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED`)
	settleLaterSQL = postgres.SQL(`
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
VALUES (:task, :kind, :queue, :organisation, :site, :intent, :trace, svc_now())`)
)

// endUnpaidSQL returns the statement that ends the payment intents that a query selects and locks.
func endUnpaidSQL(due string) postgres.Statement {
	return postgres.SQL(strings.Replace(endUnpaidText, ":DUE", due, 1))
}

// CancelPaymentIntent cancels an intent that no customer has begun to pay, and returns it with the
// task that notifies the partner (zero: none). An intent that is cancelled already stays unchanged.
// Errors: ErrNotFound; ErrIntentNotCancellable if the intent is pending or has ended otherwise.
//
// An intent of an earlier epoch becomes pending until the rail has confirmed that it was not paid.
// The result is then ErrIntentNotCancellable together with a task, which asks the rail.
func (s *Store) CancelPaymentIntent(
	ctx context.Context, site SiteID, id PaymentIntentID,
) (intent PaymentIntent, task TaskID, err error) {
	var ended []PaymentIntent
	var tasks []TaskID
	actFrom(ctx).about(SubjectPaymentIntent, id.String()).in(OrganisationID{}, site)
	err = s.act(ctx, func(tx postgres.Tx) error {
		args := postgres.Args{"site": site, "id": id}
		ended, tasks, err = endUnpaid(ctx, tx, TransactionCancelled, cancelIntentSQL, args)
		if err == nil && len(ended) == 0 {
			return errUnchanged
		}
		return err
	})
	if err == nil && len(tasks) > 0 {
		task = tasks[0]
	}
	if err == nil && len(ended) > 0 {
		intent = ended[0]
	} else if err == nil { // the update changed no row; the row explains why
		intent, err = s.PaymentIntent(ctx, site, id)
	}
	if err == nil && intent.Status != TransactionCancelled {
		err = ErrIntentNotCancellable
	}
	return intent, task, wrap("cancel payment intent", err)
}

// announceEnd writes the webhook event of an intent that has ended, and returns the task that
// delivers it.
func announceEnd(ctx context.Context, tx postgres.Tx, p *PaymentIntent) (TaskID, error) {
	_, task, err := insertWebhookEvent(ctx, tx, p.OrganisationID, p.TraceID, p.push())
	return task, err
}

// endUnpaid ends payment intents with a status, by a statement of endUnpaidSQL. It returns the
// intents, and the tasks that notify partners or ask the rail first.
func endUnpaid(
	ctx context.Context, tx postgres.Tx, status TransactionStatus, end postgres.Statement, args postgres.Args,
) (ended []PaymentIntent, tasks []TaskID, err error) {
	args["status"], args["rail_memory"] = string(status), RailMemory.Milliseconds()
	if err := tx.Select(ctx, end, args, &ended); err != nil {
		return nil, nil, err
	}
	for i := range ended {
		var task TaskID
		if ended[i].State == IntentFinal {
			task, err = announceEnd(ctx, tx, &ended[i])
		} else {
			task, err = settleLater(ctx, tx, &ended[i])
		}
		if err != nil {
			return nil, nil, err
		}
		if !task.IsZero() {
			tasks = append(tasks, task)
		}
	}
	return ended, tasks, nil
}

// settleLater writes the task that asks the rail for the outcome of an intent.
func settleLater(ctx context.Context, tx postgres.Tx, p *PaymentIntent) (TaskID, error) {
	task := NewID[taskNoun]()
	_, err := tx.Run(ctx, settleLaterSQL, postgres.Args{
		"task": task, "kind": string(TaskSettleTransaction), "queue": string(QueueCheckout),
		"organisation": p.OrganisationID, "site": p.SiteID, "intent": p.ID, "trace": string(p.TraceID),
	})
	return task, err
}

// expireIntent expires an overdue intent unless another statement has ended it or begun its
// payment, and returns the intent.
func (s *Store) expireIntent(ctx context.Context, site SiteID, id PaymentIntentID) (intent PaymentIntent, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ended, _, err := endUnpaid(ctx, tx, TransactionExpired, expireIntentSQL, postgres.Args{"site": site, "id": id})
		if err != nil {
			return err
		}
		if len(ended) > 0 {
			intent = ended[0]
			return nil
		}
		found, err := intentByID(ctx, tx, site, id)
		intent = found.PaymentIntent
		return err
	})
	return intent, err
}

// ExpirePaymentIntents expires at most limit overdue intents of all Sites, writes their webhook
// events, and returns their number. It skips locked intents.
func (s *Store) ExpirePaymentIntents(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ended, _, err := endUnpaid(ctx, tx, TransactionExpired, expireIntentsSQL, postgres.Args{"most": limit})
		n = len(ended)
		return err
	})
	if err != nil {
		return 0, wrap("expire payment intents", err)
	}
	return n, nil
}
