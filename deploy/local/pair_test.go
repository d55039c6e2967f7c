package local

import (
	"context"
	"testing"
)

// Each failover keeps what the standby had, loses what it had not, and never repeats an epoch.
func TestPairFailsOver(t *testing.T) {
	t.Parallel()
	p, err := TempPair(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop(context.Background())) })
	exec1(t, p.DatabaseURL(), "CREATE TABLE kept (n int)")
	epochs := map[string]bool{}
	for round, lose := range []bool{false, true, false, true} {
		epoch, err := p.Epoch(t.Context())
		must(t, err)
		if epochs[epoch] {
			t.Errorf("epoch %s comes again", epoch)
		}
		epochs[epoch] = true
		if lose {
			must(t, p.CatchUp(t.Context()))
			must(t, p.Detach(t.Context()))
		} else {
			must(t, p.Synchronous(t.Context()))
		}
		exec1(t, p.DatabaseURL(), "INSERT INTO kept VALUES (1)")
		old := p.Primary()
		p.KillPrimary()
		must(t, p.Promote(t.Context()))
		if p.Primary() == old {
			t.Fatal("the primary is the old one")
		}
		want := []string{"1", "1", "2", "2"}[round]
		if got := query(t, p.DatabaseURL(), "SELECT count(*)::text FROM kept"); got != want {
			t.Errorf("after promotion %d there are %s rows, want %s", round+1, got, want)
		}
		must(t, p.Rejoin(t.Context()))
		if got := query(t, p.Standby().DatabaseURL, "SELECT pg_is_in_recovery() || ' ' || count(*) FROM kept"); got != "true "+want {
			t.Errorf("the standby says %s", got)
		}
	}
	select {
	case err := <-p.Primary().Died():
		t.Errorf("a deliberate end was reported: %v", err)
	case err := <-p.Standby().Died():
		t.Errorf("a deliberate end was reported: %v", err)
	default:
	}
}
