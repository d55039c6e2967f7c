package models

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"partnerbilling/models/postgres"
)

// MaxClockOffset bounds how far the service's clock may run ahead of the database's clock. All
// derived times stay within Millis and exact JSON numbers.
const MaxClockOffset = 100 * 365 * 24 * time.Hour

// ErrClockRange says that a step is negative or exceeds MaxClockOffset in total.
var ErrClockRange = errors.New("models: clock step out of range")

// svcNow is svc_now() for hot statements: Postgres plans a function anew at each call.
const svcNow = `(SELECT now FROM service_now)`

var (
	nowSQL   = postgres.SQL(`SELECT svc_now()`)
	clockSQL = postgres.SQL(`SELECT svc_now(), offset_ms FROM service_clock`)
	// advanceClockSQL computes the new time: svc_now() would read the row before the update.
	advanceClockSQL = postgres.SQL(`
UPDATE service_clock SET offset_ms = offset_ms + :step WHERE offset_ms + :step <= :most
RETURNING coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms`)
)

// Now returns the service time, as the database decides it.
func (s *Store) Now(ctx context.Context) (now Millis, err error) {
	err = s.pg.Get(ctx, nowSQL, nil, &now)
	return now, wrap("read the clock", err)
}

// Clock returns the service time, and how far it is ahead of the database's clock.
func (s *Store) Clock(ctx context.Context) (now Millis, advanced time.Duration, err error) {
	var offset int64
	err = s.pg.Get(ctx, clockSQL, nil, &now, &offset)
	return now, time.Duration(offset) * time.Millisecond, wrap("read the clock", err)
}

// AdvanceClock moves the service's clock forward by whole milliseconds, for every process, and
// returns the new time. Steps add up. ErrClockRange: the step is negative or the total exceeds
// MaxClockOffset.
func (s *Store) AdvanceClock(ctx context.Context, by time.Duration) (now Millis, err error) {
	step, most := by.Milliseconds(), MaxClockOffset.Milliseconds()
	if by < 0 || step > most {
		return 0, ErrClockRange
	}
	err = s.pg.Get(ctx, advanceClockSQL, postgres.Args{"step": step, "most": most}, &now)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrClockRange
	}
	return now, wrap("advance the clock", err)
}
