package api

import (
	"bufio"
	"context"
	"strconv"
	"time"

	"partnerbilling/api/csvtable"
	"partnerbilling/models"
)

const (
	// maxExports is the maximum number of tables that a process streams at once.
	maxExports = 16
	// exportStepTimeout bounds the reading of one part of a table: the check of the caller, the
	// wait for a slot and the query.
	exportStepTimeout = 10 * time.Second
	// exportPiece is the size in bytes from which written rows are sent to the client.
	exportPiece = 32 << 10
)

// movementFields are the column names, in the order of the fields of movementData.
var movementFields = []string{
	"movementId", "at", "amount", "currency", "batchReference", "rowReference", "customerReference", "paymentIntentId",
	"orderId",
}

// appendMovement appends a movement as one line of CSV. The amount is in minor units, the time in
// ms of Unix time.
func appendMovement(table []byte, m *models.Movement) []byte {
	intent := ""
	if !m.PaymentIntentID.IsZero() {
		intent = m.PaymentIntentID.String()
	}
	return csvtable.AppendRecord(table, m.ID().String(), timeCell(m.RecordedAt), strconv.FormatInt(int64(m.Amount), 10),
		m.Currency,
		csvtable.TextCell(m.BatchReference), csvtable.TextCell(m.RowReference), csvtable.TextCell(m.CustomerReference),
		intent, csvtable.TextCell(m.OrderID))
}

// export answers with all movements of the range as a table. A table of models.MaxMovements or more
// is streamed.
func (m *movements) export(
	ctx context.Context, r *Request, q *pageQuery[movementFilter, models.MovementPosition],
) error {
	now, err := m.store.Now(ctx)
	if err != nil {
		return err
	}
	if err := q.checkAge(r, now); err != nil {
		return err
	}
	e := &movementExport{store: m.store, site: r.Site.ID, filter: q.Filter, caller: r.callerCheck(),
		slot: r.stepSlot()}
	if err := e.read(ctx); err != nil {
		return err
	}
	name, table := "movements-"+r.Site.ID.String(), csvtable.AppendRecord(nil, movementFields...)
	if e.more && r.isHead() {
		return r.CSV(name, nil)
	}
	if !e.more {
		for i := range e.part {
			table = appendMovement(table, &e.part[i])
		}
		return r.CSV(name, table)
	}
	select {
	case m.exports <- struct{}{}:
	default:
		busy := Refuse(Unavailable, "")
		busy.RetryAfter = retryUnavailable
		return busy
	}
	connection := r.fast.Conn()
	r.SetHeader("Content-Disposition", attachment(name+".csv"))
	r.SetHeader("Cache-Control", "no-store")
	// A server that shuts down lets the table end, like any other answer.
	r.stream(ctx, r.server.lifetime, contentTypeCSV, func(ctx context.Context, out *bufio.Writer, flush func() error) {
		defer func() { <-m.exports }()
		if e.run(ctx, table, out, flush) != nil {
			_ = connection.Close() // shows the client that the table is incomplete
		}
	})
	return nil
}

// movementExport writes a table in parts, newest movement first. Movements that are recorded
// meanwhile are newer than its first row, so they are not in it.
type movementExport struct {
	store  *models.Store
	site   models.SiteID
	filter movementFilter
	caller *callerCheck
	slot   slot // held during every query but the first, which uses the request's slot

	part []models.Movement // the part that was read last
	more bool              // more movements may follow
}

// read reads the next part: the movements before the last one of the present part.
func (e *movementExport) read(ctx context.Context) error {
	var at models.MovementPosition
	if n := len(e.part); n > 0 {
		at = models.MovementPosition{At: e.part[n-1].RecordedAt, Key: e.part[n-1].RailKey}
	}
	part, err := e.store.MovementsAfter(models.ReadReplica(ctx), e.site, e.filter.From, e.filter.To, at)
	e.part, e.more = part, len(part) == models.MaxMovements
	return err
}

// readNext repeats the caller's check if that is due, acquires a slot and reads the next part.
func (e *movementExport) readNext(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, exportStepTimeout)
	defer cancel()
	if err := e.caller.repeatIfDue(ctx); err != nil {
		return err
	}
	for e.slot.acquire(ctx, true) != nil { // each call waits up to the wait limit
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	defer e.slot.release()
	return e.read(ctx)
}

// run sends the parts to the client as they are read, after the given beginning of the table. It
// repeats the check of the caller between pieces too, because a slow client may take long to
// receive many. An error means that the table is incomplete.
func (e *movementExport) run(ctx context.Context, table []byte, out *bufio.Writer, flush func() error) error {
	send := func() error {
		if _, err := out.Write(table); err != nil {
			return err
		}
		table = table[:0]
		return flush()
	}
	for {
		for i := range e.part {
			if table = appendMovement(table, &e.part[i]); len(table) < exportPiece {
				continue
			}
			err := send()
			if err == nil {
				err = e.caller.repeatIfDue(ctx)
			}
			if err != nil {
				return err
			}
		}
		if !e.more {
			return send()
		}
		if err := e.readNext(ctx); err != nil {
			return err
		}
	}
}
