package models

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"partnerbilling/models/postgres"
)

// MaxClockOffset is the maximum time by which service time may run ahead of the database's clock.
// It keeps all times within the exact numbers of JSON.
const MaxClockOffset = 100 * 365 * 24 * time.Hour

// ErrClockRange says that a step of AdvanceClock is negative, or would exceed MaxClockOffset in
// total.
var ErrClockRange = errors.New("models: clock step out of range")

// svcNow is service time in the SQL of hot statements. It reads a view, which the planner inlines;
// the function svc_now() costs a call.
const svcNow = `(SELECT now FROM service_now)`

var (
	nowSQL   = postgres.SQL(`SELECT svc_now()`)
	clockSQL = postgres.SQL(`SELECT svc_now(), offset_ms FROM service_clock`)
	// advanceClockSQL computes the new time itself: svc_now() would still read the old offset.
	advanceClockSQL = postgres.SQL(`
UPDATE service_clock SET offset_ms = offset_ms + :step WHERE offset_ms + :step <= :most
RETURNING coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms`)
)

// Now returns service time: the database's time plus the offset of the sandbox's clock.
func (s *Store) Now(ctx context.Context) (now Millis, err error) {
	err = s.pg.Get(ctx, nowSQL, nil, &now)
	return now, wrap("read the clock", err)
}

// Clock returns service time, and how far AdvanceClock has moved it ahead of the database's time.
func (s *Store) Clock(ctx context.Context) (now Millis, advanced time.Duration, err error) {
	var offset int64
	err = s.pg.Get(ctx, clockSQL, nil, &now, &offset)
	return now, time.Duration(offset) * time.Millisecond, wrap("read the clock", err)
}

// AdvanceClock moves service time forward for every process, and returns the new time. It truncates
// the step to whole milliseconds. Steps add up. ErrClockRange: the step is negative, or the total
// would exceed MaxClockOffset.
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
