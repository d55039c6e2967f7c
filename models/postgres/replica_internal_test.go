package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestStandbyIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status ReplicaStatus
		age    time.Duration // of the position
		want   error
	}{
		"follows":                        {ReplicaStatus{Follows: true, ClockLead: 3}, 0, nil},
		"lacks commits":                  {ReplicaStatus{Follows: true, Behind: 1}, 0, ErrReplicaBehind},
		"is no standby, or of another":   {ReplicaStatus{ClockLead: 3}, 0, ErrReplicaForeign},
		"clock behind":                   {ReplicaStatus{Follows: true, ClockLead: -1}, 0, ErrReplicaBehind},
		"clock ahead":                    {ReplicaStatus{Follows: true, ClockLead: 1001}, 0, ErrReplicaBehind},
		"later read of the same context": {ReplicaStatus{Follows: true, ClockLead: 5900}, 5 * time.Second, nil},
	} {
		if err := tt.status.check(tt.age); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// A pool leaves a standby that is behind for the next one of the URL.
func TestPoolLeavesAHost(t *testing.T) {
	t.Parallel()
	conf, err := pgx.ParseConfig("postgres://svc@a:1,b:2,c:3/svc?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	c := newConnector(conf, false, time.Second)
	defer c.end()
	for _, want := range []int32{1, 2, 0} {
		generation := c.generation.Load()
		if c.leaveHost(); c.preferred.Load() != want || c.generation.Load() == generation {
			t.Errorf("prefers host %d, want %d; generation %d", c.preferred.Load(), want, c.generation.Load())
		}
	}
}
