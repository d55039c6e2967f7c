package models

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxClockOffset bounds how far the service's clock may run ahead of the database's clock. All
// derived times stay within Millis and exact JSON numbers.
const MaxClockOffset = 100 * 365 * 24 * time.Hour

// ErrClockRange says that a step is negative or exceeds MaxClockOffset in total.
var ErrClockRange = errors.New("models: clock step out of range")

// svcNow is svc_now() for hot statements: Postgres plans a function anew at each call.
const svcNow = `(SELECT now FROM service_now)`

// Now is the service's time, as the database decides it.
func (s *Store) Now(ctx context.Context) (Millis, error) {
	var now Millis
	err := s.pg.Do(ctx, func() error {
		return s.db.QueryRowContext(ctx, "SELECT svc_now()").Scan(&now)
	})
	if err != nil {
		return 0, fmt.Errorf("models: read the clock: %w", err)
	}
	return now, nil
}

// Clock returns the service time and the offset to the database's clock.
func (s *Store) Clock(ctx context.Context) (now Millis, advanced time.Duration, err error) {
	var offset int64
	err = s.pg.Do(ctx, func() error {
		return s.db.QueryRowContext(ctx, "SELECT svc_now(), offset_ms FROM service_clock").Scan(&now, &offset)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("models: read the clock: %w", err)
	}
	return now, time.Duration(offset) * time.Millisecond, nil
}

// AdvanceClock moves the service's clock forward by whole milliseconds, for every process, and
// returns the new time. Steps add up. ErrClockRange: the step is negative or the total exceeds
// MaxClockOffset.
func (s *Store) AdvanceClock(ctx context.Context, by time.Duration) (Millis, error) {
	step, most := by.Milliseconds(), MaxClockOffset.Milliseconds()
	if by < 0 || step > most {
		return 0, ErrClockRange
	}
	var now []Millis
	err := s.pg.Do(ctx, func() error {
		// svc_now() would read the row before this update, so the statement computes the new time.
		return s.db.NewRaw(`
			UPDATE service_clock SET offset_ms = offset_ms + ?0 WHERE offset_ms <= ?1
			RETURNING coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms`,
			step, most-step).Scan(ctx, &now)
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("models: advance the clock: %w", err)
	case len(now) == 0:
		return 0, ErrClockRange
	}
	return now[0], nil
}
