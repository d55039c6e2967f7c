package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"partnerbilling/models/postgres"
)

var (
	//go:embed payment_intent_insert.sql
	insertIntentsText string
	insertIntentsSQL  = postgres.SQL(insertIntentsText)
)

// toJSON encodes a list for a JSON column; NULL for an empty list.
func toJSON[T any](list []T) (sql.NullString, error) {
	if len(list) == 0 {
		return sql.NullString{}, nil
	}
	text, err := json.Marshal(list)
	return sql.NullString{String: string(text), Valid: true}, err
}

// CreatePaymentIntent creates a payment intent. If an earlier call with the same key created one,
// it returns that intent as stored now, and replayed is true. Without a key (nil), concurrent calls
// share one statement and its commit. Errors: ErrNotFound for an unknown Site; *FieldError on
// expiresAt; *QuotaError; ErrIdempotencyKeyReused; ErrIdempotencyKeyInFlight.
func (s *Store) CreatePaymentIntent(
	ctx context.Context, in NewPaymentIntent, key *IdempotencyKey,
) (intent PaymentIntent, replayed bool, err error) {
	asked, err := newInsertedIntent(ctx, in)
	if err == nil {
		intent, replayed, err = s.createIntent(ctx, in.OrganisationID, asked, key)
	}
	var fault *FieldError
	if errors.As(err, &fault) { // the insertion leaves out an unknown Site, too
		if _, unknown := s.AnySite(ctx, in.SiteID); unknown != nil {
			err = unknown
		}
	}
	return intent, replayed, wrap("create payment intent", err)
}

// createIntent reserves an event of the organisation's quota and inserts the payment intent. A
// replay needs no quota.
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

// createIntentOnce returns the payment intent that an earlier call with the key created. Without
// one, it returns refused if that is set, else it inserts the payment intent.
func (s *Store) createIntentOnce(
	ctx context.Context, asked *insertedIntent, key *IdempotencyKey, refused error,
) (intent PaymentIntent, replayed bool, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		id, again, err := idempotent(ctx, tx, key, func() (PaymentIntentID, error) {
			if refused != nil {
				return PaymentIntentID{}, refused
			}
			all := []*insertedIntent{asked}
			var rows []insertedRow
			if err := tx.Select(ctx, insertIntentsSQL, intentArrays(all), &rows); err != nil {
				return PaymentIntentID{}, err
			}
			there, err := completeInserted(all, rows)
			if err != nil {
				return PaymentIntentID{}, err
			}
			intent, err = asked.made(there[0], nil)
			return intent.ID, err
		})
		if replayed = again; err != nil || !again {
			return err
		}
		found, err := intentByID(ctx, tx, asked.intent.SiteID, id)
		intent = found.PaymentIntent
		return err
	})
	return intent, replayed, err
}

// insertedIntent is a payment intent to insert. The insertion completes intent with the columns of
// insertedRow.
type insertedIntent struct {
	intent    PaymentIntent
	lines     *string // the line items as JSON; nil for none
	expiresAt Millis  // as requested; 0: DefaultIntentLife after creation
}

// newInsertedIntent prepares a requested payment intent for insertion, with a new id and code.
func newInsertedIntent(ctx context.Context, in NewPaymentIntent) (*insertedIntent, error) {
	lines, err := toJSON(in.LineItems)
	if err != nil {
		return nil, err
	}
	trace := TraceIDFrom(ctx)
	p := PaymentIntent{
		SiteID: in.SiteID, ID: newIDFor[intentNoun](trace), Code: NewIntentCode(), Amount: in.Amount,
		OrderID: in.OrderID, LineItems: in.LineItems, ReturnURL: in.ReturnURL, QRCodeFormat: in.QRCodeFormat,
		State: IntentCreated, TraceID: trace,
	}
	asked := &insertedIntent{intent: p, expiresAt: in.ExpiresAt}
	if lines.Valid {
		asked.lines = &lines.String
	}
	return asked, nil
}

// made returns the payment intent if it was inserted. An expiry out of bounds or an unknown Site
// prevents the insertion. made then returns a *FieldError on the expiry; CreatePaymentIntent checks
// the Site.
func (n *insertedIntent) made(inserted bool, err error) (PaymentIntent, error) {
	switch {
	case err != nil: // the caller may have left while the insertion goes on
		return PaymentIntent{}, err
	case !inserted:
		return PaymentIntent{}, errIntentExpiry
	default:
		return n.intent, nil
	}
}

// errIntentExpiry describes the bounds MinIntentLife and MaxIntentLife.
var errIntentExpiry = &FieldError{Field: "expiresAt", Message: "must be 1 minute to 24 hours ahead"}

// CheckIntentExpiry returns a *FieldError unless CreatePaymentIntent accepts the expiry at the
// given time.
func CheckIntentExpiry(expiresAt, now Millis) error {
	if expiresAt.isAhead(now, MinIntentLife, MaxIntentLife) {
		return nil
	}
	return errIntentExpiry
}

// intentArrays returns the arguments of insertIntentsSQL.
func intentArrays(all []*insertedIntent) postgres.Args {
	n := len(all)
	sites, ids, codes := make([]SiteID, n), make([]PaymentIntentID, n), make([]string, n)
	amounts, orders := make([]int64, n), make([]string, n)
	lines, formats, expiries, traces := make([]*string, n), make([]string, n), make([]int64, n), make([]string, n)
	returns := make([]string, n)
	for i, one := range all {
		p := &one.intent
		sites[i], ids[i], codes[i], amounts[i], orders[i] = p.SiteID, p.ID, p.Code, int64(p.Amount), p.OrderID
		lines[i], formats[i], returns[i] = one.lines, string(p.QRCodeFormat), p.ReturnURL
		expiries[i], traces[i] = int64(one.expiresAt), string(p.TraceID)
	}
	return postgres.Args{
		"sites": sites, "ids": ids, "codes": codes, "amounts": amounts, "orders": orders, "lines": lines,
		"formats": formats, "expiries": expiries, "traces": traces, "returns": returns,
		"default_life": DefaultIntentLife.Milliseconds(), "min_life": MinIntentLife.Milliseconds(),
		"max_life": MaxIntentLife.Milliseconds(),
	}
}

// insertedRow is what only Postgres knows of an inserted payment intent.
type insertedRow struct {
	ID             PaymentIntentID `db:"id"`
	OrganisationID OrganisationID  `db:"organisation_id"`
	Currency       string          `db:"currency"`
	CreatedAt      Millis          `db:"created_at"`
	ExpiresAt      Millis          `db:"expires_at"`
}

// insertIntents inserts payment intents with one statement, and reports for each element of all
// whether it was inserted. It uses the driver directly, which needs no goroutine to watch the
// query.
func (s *Store) insertIntents(ctx context.Context, all []*insertedIntent) (there []bool, err error) {
	values, err := insertIntentsSQL.Bind(intentArrays(all))
	if err != nil {
		return nil, err
	}
	err = s.pg.Native(ctx, func(conn *pgx.Conn) error {
		found, err := conn.Query(ctx, insertIntentsSQL.Text(), values...)
		if err != nil {
			return err
		}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByName[insertedRow])
		if err != nil {
			return err
		}
		there, err = completeInserted(all, rows)
		return err
	})
	return there, err
}

// completeInserted copies the returned rows into the intents that were inserted. It reports for
// each element of all whether it was inserted.
func completeInserted(all []*insertedIntent, rows []insertedRow) ([]bool, error) {
	index := make(map[PaymentIntentID]int, len(all))
	for i, one := range all {
		index[one.intent.ID] = i
	}
	there := make([]bool, len(all))
	for _, row := range rows {
		i, ok := index[row.ID]
		if !ok {
			return nil, fmt.Errorf("inserted %s, which no call requested", row.ID)
		}
		to := &all[i].intent
		to.OrganisationID, to.Currency, to.CreatedAt, to.ExpiresAt = row.OrganisationID, row.Currency, row.CreatedAt,
			row.ExpiresAt
		there[i] = true
	}
	return there, nil
}
