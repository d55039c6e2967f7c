package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// sandboxFaultRow is a row of the table sandbox_faults.
type sandboxFaultRow struct {
	bun.BaseModel `bun:"table:sandbox_faults"`

	Fault  SandboxFault `bun:"fault,pk"`
	EndsAt Millis       `bun:"ends_at"`
}

// SetSandboxFault makes a fault of the sandbox rail last for a duration from now, in service time.
// It replaces an earlier setting, and 0 ends the fault. ErrSandboxFault: the fault is unknown, or
// the duration is negative or exceeds MaxSandboxFault.
func (s *Store) SetSandboxFault(ctx context.Context, fault SandboxFault, lasts time.Duration) error {
	if !slices.Contains(SandboxFaults, fault) || lasts < 0 || lasts > MaxSandboxFault {
		return ErrSandboxFault
	}
	err := s.pg.Do(ctx, func() error {
		_, err := s.db.NewRaw(`
			INSERT INTO sandbox_faults (fault, ends_at) VALUES (?, svc_now() + ?)
			ON CONFLICT (fault) DO UPDATE SET ends_at = excluded.ends_at`, fault, lasts.Milliseconds()).Exec(ctx)
		return err
	})
	return wrap("set a fault of the sandbox", err)
}

// ActiveSandboxFaults returns the active faults, with the service time of their end.
func (s *Store) ActiveSandboxFaults(ctx context.Context) (map[SandboxFault]Millis, error) {
	var rows []sandboxFaultRow
	err := s.pg.Read(ctx, func(on bun.IDB) error {
		return on.NewSelect().Model(&rows).Where("ends_at > svc_now()").Scan(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("models: read the faults of the sandbox: %w", err)
	}
	active := make(map[SandboxFault]Millis, len(rows))
	for _, row := range rows {
		active[row.Fault] = row.EndsAt
	}
	return active, nil
}
