package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"encoding/json"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"

	"github.com/jackc/pgx/v5"
)

// The errors of paying and cancelling that callers distinguish.
var (
	// ErrIntentExpired: the payment intent expired before a payment began.
	ErrIntentExpired = errors.New("models: payment intent expired")
	// ErrIntentCancelled: the partner has cancelled the payment intent.
	ErrIntentCancelled = errors.New("models: payment intent cancelled")
	// ErrIntentTaken: another customer is paying, or has paid.
	ErrIntentTaken = errors.New("models: payment intent taken by another customer")
	// ErrIntentEnded: another customer's payment has ended.
	ErrIntentEnded = fmt.Errorf("%w: ended", ErrIntentTaken)
	// ErrIntentNotCancellable: a payment has begun, or the payment intent has ended otherwise.
	ErrIntentNotCancellable = errors.New("models: payment intent cannot be cancelled")
)

// intentColumns are the columns that scanIntent reads, in its order.
const intentColumns = `p.site_id, p.id, p.organisation_id, p.code, p.amount, p.currency, coalesce(p.order_id, ''), p.line_items,
	coalesce(p.return_url, ''), p.qr_code_format, p.state, coalesce(p.transaction_status::text, ''), coalesce(p.status_reason::text, ''), p.created_at,
	p.expires_at, coalesce(p.final_at, 0), p.trace_id, p.transaction_id, coalesce(p.customer_id, ''),
	coalesce(p.agreement_id, ''), p.discounts, coalesce(p.amount_charged, 0), coalesce(p.started_at, 0)`

// scanIntent scans intentColumns, and more columns after them.
func scanIntent(row scanner, more ...any) (PaymentIntent, error) {
	var p PaymentIntent
	var lines, discounts []byte
	t := &p.Transaction
	err := row.Scan(append([]any{
		&p.SiteID, &p.ID, &p.OrganisationID, &p.Code, &p.Amount, &p.Currency, &p.OrderID, &lines,
		&p.ReturnURL, &p.QRCodeFormat, &p.State, &p.Status, &p.StatusReason, &p.CreatedAt,
		&p.ExpiresAt, &p.FinalAt, &p.TraceID, &t.ID, &t.Party.CustomerID,
		&t.Party.AgreementID, &discounts, &t.Charge, &t.StartedAt,
	}, more...)...)
	if err != nil {
		return PaymentIntent{}, err
	}
	return p, errors.Join(fromJSON(lines, &p.LineItems), fromJSON(discounts, &t.Discounts))
}

func fromJSON(column []byte, into any) error {
	if column == nil {
		return nil
	}
	if err := json.Unmarshal(column, into); err != nil {
		return fmt.Errorf("models: stored JSON: %w", err)
	}
	return nil
}

// toJSON encodes a list for a JSON column; NULL for an empty list.
func toJSON[T any](list []T) (sql.NullString, error) {
	if len(list) == 0 {
		return sql.NullString{}, nil
	}
	text, err := json.Marshal(list)
	return sql.NullString{String: string(text), Valid: true}, err
}

// CreatePaymentIntent creates a payment intent, or returns the intent that key made before
// (replayed, in its current state). key may be nil: then concurrent calls share one statement and
// its commit. Errors: *FieldError on expiresAt, *QuotaError, ErrIdempotencyKeyReused,
// ErrIdempotencyKeyInFlight.
func (s *Store) CreatePaymentIntent(
	ctx context.Context, in NewPaymentIntent, key *IdempotencyKey,
) (intent PaymentIntent, replayed bool, err error) {
	asked, err := newInsertedIntent(ctx, in)
	if err == nil {
		intent, replayed, err = s.createIntent(ctx, in.OrganisationID, asked, key)
	}
	if err != nil {
		return PaymentIntent{}, false, wrap("create payment intent", err)
	}
	return intent, replayed, nil
}

func (s *Store) createIntent(
	ctx context.Context, organisation OrganisationID, asked *insertedIntent, key *IdempotencyKey,
) (intent PaymentIntent, replayed bool, err error) {
	reserved, refused := s.gauges.events.reserve(ctx, organisation, 1)
	defer func() { reserved.done(stored(1, err == nil && !replayed)) }()
	switch {
	case key != nil:
		return s.createIntentOnce(ctx, asked, key, refused)
	case refused != nil:
		return PaymentIntent{}, false, refused
	}
	intent, err = asked.made(s.intents.Do(ctx, asked))
	return intent, false, err
}

// createIntentOnce inserts a payment intent, unless refused is set, or reads the intent that the
// key made before.
func (s *Store) createIntentOnce(
	ctx context.Context, asked *insertedIntent, key *IdempotencyKey, refused error,
) (intent PaymentIntent, replayed bool, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		id, again, err := idempotent(ctx, tx, key, func() (PaymentIntentID, error) {
			if refused != nil {
				return PaymentIntentID{}, refused
			}
			rows, err := tx.Tx.Tx.QueryContext(ctx, insertIntentsSQL, intentArrays([]*insertedIntent{asked})...)
			if err != nil {
				return PaymentIntentID{}, err
			}
			defer func() { _ = rows.Close() }()
			there, err := readInserted(rows, []*insertedIntent{asked})
			if err := errors.Join(err, rows.Err()); err != nil {
				return PaymentIntentID{}, err
			}
			intent, err = asked.made(there[0], nil)
			return intent.ID, err
		})
		if replayed = again; err != nil || !again {
			return err
		}
		intent, _, err = intentByID(ctx, tx.Tx.Tx, asked.intent.SiteID, id)
		return err
	})
	return intent, replayed, err
}

// scanner is a row of either database API.
type scanner interface{ Scan(...any) error }

// insertedIntent is a payment intent to insert. The statement fills in what only Postgres knows.
type insertedIntent struct {
	intent    PaymentIntent
	lines     *string // the line items as JSON; nil for none
	expiresAt Millis  // as asked for; 0: after DefaultIntentLife
}

func newInsertedIntent(ctx context.Context, in NewPaymentIntent) (*insertedIntent, error) {
	lines, err := toJSON(in.LineItems)
	if err != nil {
		return nil, err
	}
	trace := TraceIDFrom(ctx)
	p := PaymentIntent{
		SiteID: in.SiteID, ID: newIDFor[intentNoun](trace), Code: NewIntentCode(), Amount: in.Amount, OrderID: in.OrderID,
		LineItems: in.LineItems, ReturnURL: in.ReturnURL, QRCodeFormat: in.QRCodeFormat, State: IntentCreated, TraceID: trace,
	}
	asked := &insertedIntent{intent: p, expiresAt: in.ExpiresAt}
	if lines.Valid {
		asked.lines = &lines.String
	}
	return asked, nil
}

// made returns the payment intent if it was inserted. An expiry out of bounds prevents the
// insertion.
func (n *insertedIntent) made(inserted bool, err error) (PaymentIntent, error) {
	switch {
	case err != nil: // the caller may have left while the insertion goes on
		return PaymentIntent{}, err
	case !inserted:
		return PaymentIntent{}, &FieldError{Field: "expiresAt", Message: "must be 1 minute to 24 hours ahead"}
	default:
		return n.intent, nil
	}
}

const insertIntentsSQL = `
INSERT INTO payment_intents AS p (site_id, id, organisation_id, epoch, code, amount, currency, order_id, line_items, qr_code_format,
	created_at, expires_at, trace_id, return_url)
SELECT s.id, n.id, s.organisation_id, (SELECT epoch FROM database_epoch), n.code, n.amount, s.currency, nullif(n.order_id, ''), n.line_items::jsonb, n.qr_code_format,
	now, coalesce(nullif(n.expires_at, 0), now + $10::bigint), n.trace_id, nullif(n.return_url, '')
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $13::text[])
	AS n (site_id, id, code, amount, order_id, line_items, qr_code_format, expires_at, trace_id, return_url)
JOIN sites s ON s.id = n.site_id CROSS JOIN service_now
WHERE n.expires_at = 0 OR n.expires_at BETWEEN now + $11::bigint AND now + $12::bigint
RETURNING p.id, p.organisation_id, p.currency, p.created_at, p.expires_at`

// intentArrays are the parameters of insertIntentsSQL.
func intentArrays(all []*insertedIntent) []any {
	n := len(all)
	sites, ids, codes := make([]SiteID, n), make([]PaymentIntentID, n), make([]string, n)
	amounts, orders := make([]int64, n), make([]string, n)
	lines, formats, expiries, traces := make([]*string, n), make([]string, n), make([]int64, n), make([]string, n)
	returns := make([]string, n)
	for i, one := range all {
		p := &one.intent
		sites[i], ids[i], codes[i], amounts[i], orders[i] = p.SiteID, p.ID, p.Code, int64(p.Amount), p.OrderID
		lines[i], formats[i], expiries[i], traces[i] = one.lines, string(p.QRCodeFormat), int64(one.expiresAt), string(p.TraceID)
		returns[i] = p.ReturnURL
	}
	return []any{
		sites, ids, codes, amounts, orders, lines, formats, expiries, traces,
		DefaultIntentLife.Milliseconds(), MinIntentLife.Milliseconds(), MaxIntentLife.Milliseconds(), returns,
	}
}

// insertIntents inserts a batch of payment intents. It uses the driver directly, which needs no
// goroutine to watch the query. It reports which intents were inserted.
func (s *Store) insertIntents(ctx context.Context, all []*insertedIntent) (there []bool, err error) {
	err = s.pg.Native(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, insertIntentsSQL, intentArrays(all)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		there, err = readInserted(rows, all)
		return err
	})
	return there, err
}

// readInserted completes the inserted intents and reports which they are.
func readInserted(rows interface {
	scanner
	Next() bool
	Err() error
}, all []*insertedIntent) ([]bool, error) {
	place := make(map[PaymentIntentID]int, len(all))
	for i, one := range all {
		place[one.intent.ID] = i
	}
	there := make([]bool, len(all))
	for rows.Next() {
		var p PaymentIntent
		if err := rows.Scan(&p.ID, &p.OrganisationID, &p.Currency, &p.CreatedAt, &p.ExpiresAt); err != nil {
			return nil, err
		}
		i, ok := place[p.ID]
		if !ok {
			return nil, fmt.Errorf("inserted %s, which no call requested", p.ID)
		}
		to := &all[i].intent
		to.OrganisationID, to.Currency, to.CreatedAt, to.ExpiresAt = p.OrganisationID, p.Currency, p.CreatedAt, p.ExpiresAt
		there[i] = true
	}
	return there, rows.Err()
}

// PaymentIntent returns an intent of the Site; ErrNotFound if there is none. It expires an overdue
// intent before it answers, so that no concurrent payment contradicts the answer.
func (s *Store) PaymentIntent(ctx context.Context, site SiteID, id PaymentIntentID) (PaymentIntent, error) {
	var intent PaymentIntent
	var over bool
	err := s.pg.Do(ctx, func() (err error) {
		intent, over, err = intentByID(ctx, s.db.DB, site, id)
		return err
	})
	if err == nil && over {
		intent, err = s.expireIntent(ctx, site, id)
	}
	return intent, wrap("payment intent", err)
}

// PaymentIntentByCode is PaymentIntent for the customer app, which knows the code. It also returns
// the payee.
func (s *Store) PaymentIntentByCode(ctx context.Context, code string) (PaymentIntent, Payee, error) {
	var intent PaymentIntent
	var payee Payee
	var over bool
	err := s.pg.Do(ctx, func() (err error) {
		intent, err = scanIntent(s.db.DB.QueryRowContext(ctx, `
SELECT `+intentColumns+`, p.state = 'created' AND p.expires_at <= svc_now(), o.name, s.name
FROM payment_intents p JOIN sites s ON s.id = p.site_id JOIN organisations o ON o.id = p.organisation_id
WHERE p.code = $1`, code), &over, &payee.OrganisationName, &payee.SiteName)
		return notFound(err, "payment intent")
	})
	if err == nil && over {
		intent, err = s.expireIntent(ctx, intent.SiteID, intent.ID)
	}
	return intent, payee, wrap("payment intent by code", err)
}

// OrganisationPaymentIntent is PaymentIntent for any Site of the organisation.
func (s *Store) OrganisationPaymentIntent(
	ctx context.Context, organisation OrganisationID, id PaymentIntentID,
) (PaymentIntent, error) {
	var site SiteID
	err := s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, `
SELECT p.site_id FROM sites s JOIN payment_intents p ON p.site_id = s.id AND p.id = $2
WHERE s.organisation_id = $1`, organisation, id).Scan(&site)
		return notFound(err, "payment intent")
	})
	if err != nil {
		return PaymentIntent{}, wrap("payment intent of an organisation", err)
	}
	return s.PaymentIntent(ctx, site, id)
}

// intentByID reads an intent, and reports whether it is overdue.
func intentByID(
	ctx context.Context, db querier, site SiteID, id PaymentIntentID,
) (intent PaymentIntent, over bool, err error) {
	intent, err = scanIntent(db.QueryRowContext(ctx, `
SELECT `+intentColumns+`, p.state = 'created' AND p.expires_at <= svc_now()
FROM payment_intents p WHERE p.site_id = $1 AND p.id = $2`, site, id), &over)
	return intent, over, notFound(err, "payment intent")
}

// endUnpaidSQL follows a "WITH due AS (…)" that locks payment intents.
//
//go:embed payment_intent_end_unpaid.sql
var endUnpaidSQL string

// CancelPaymentIntent cancels an intent that no customer has begun to pay. It returns the task that
// notifies the partner (zero: none). A cancelled intent stays unchanged. An intent of an earlier
// epoch becomes pending until the rail has confirmed that it was not paid. Errors: ErrNotFound;
// ErrIntentNotCancellable if it is pending or has ended otherwise.
func (s *Store) CancelPaymentIntent(
	ctx context.Context, site SiteID, id PaymentIntentID,
) (intent PaymentIntent, task TaskID, err error) {
	var ended []PaymentIntent
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var tasks []TaskID
		ended, tasks, err = endUnpaid(ctx, tx, TransactionCancelled, `
WITH due AS (
    SELECT site_id, id FROM payment_intents WHERE site_id = $3 AND id = $4 AND state = 'created'
      AND expires_at > svc_now() FOR UPDATE
)`, site, id)
		if len(tasks) > 0 {
			task = tasks[0]
		}
		return err
	})
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

// announceEnd writes the event of an intent that has ended, in the same transaction.
func announceEnd(ctx context.Context, tx postgres.Tx, p *PaymentIntent) (TaskID, error) {
	_, task, err := insertWebhookEvent(ctx, tx.Tx.Tx, p.OrganisationID, p.TraceID, p.push())
	return task, err
}

// endUnpaid ends with status the payment intents that the query due locks; its parameters begin at
// $3. It returns the intents, and the tasks that notify partners or ask the rail first.
func endUnpaid(
	ctx context.Context, tx postgres.Tx, status TransactionStatus, due string, args ...any,
) (ended []PaymentIntent, tasks []TaskID, err error) {
	rows, err := tx.Tx.Tx.QueryContext(ctx, due+endUnpaidSQL+"RETURNING "+intentColumns,
		append([]any{string(status), RailMemory.Milliseconds()}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	if ended, err = scanIntents(rows); err != nil {
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
	_, err := tx.Tx.Tx.ExecContext(ctx, `
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, svc_now())`,
		task, string(TaskSettleTransaction), string(QueueCheckout), p.OrganisationID, p.SiteID, p.ID, string(p.TraceID))
	return task, err
}

// expireIntent reads one intent. It expires an overdue intent unless another statement has ended it
// or begun its payment.
func (s *Store) expireIntent(ctx context.Context, site SiteID, id PaymentIntentID) (intent PaymentIntent, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ended, _, err := endUnpaid(ctx, tx, TransactionExpired, `
WITH due AS (
    SELECT site_id, id FROM payment_intents WHERE site_id = $3 AND id = $4 AND state = 'created'
      AND expires_at <= svc_now() FOR UPDATE
)`, site, id)
		if err != nil {
			return err
		}
		if len(ended) > 0 {
			intent = ended[0]
			return nil
		}
		intent, _, err = intentByID(ctx, tx.Tx.Tx, site, id)
		return err
	})
	return intent, err
}

// ExpirePaymentIntents ends at most limit overdue intents, each with its event, and returns their
// number. It skips locked intents.
func (s *Store) ExpirePaymentIntents(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ended, _, err := endUnpaid(ctx, tx, TransactionExpired, `
WITH due AS (
    SELECT site_id, id FROM payment_intents WHERE state = 'created' AND expires_at <= svc_now()
    ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED
)`, limit)
		n = len(ended)
		return err
	})
	if err != nil {
		return 0, wrap("expire payment intents", err)
	}
	return n, nil
}

func scanIntents(rows *sql.Rows) ([]PaymentIntent, error) {
	defer func() { _ = rows.Close() }()
	var all []PaymentIntent
	for rows.Next() {
		intent, err := scanIntent(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, intent)
	}
	return all, rows.Err()
}
