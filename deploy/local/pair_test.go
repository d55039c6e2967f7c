package local

import (
	"context"
	"testing"
)

// A failover keeps the commits that the standby has, loses the others, and changes the epoch.
func TestPairFailsOver(t *testing.T) {
	t.Parallel()
	p, err := TempPair(t.Context(), Options{Ephemeral: true})
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop(context.Background())) })
	execSQL(t, p.DatabaseURL(), "CREATE TABLE kept (n int)")
	epochs := map[string]bool{}
	for round, detach := range []bool{false, true, false, true} {
		epoch, err := p.Epoch(t.Context())
		must(t, err)
		if epochs[epoch] {
			t.Errorf("epoch %s repeats", epoch)
		}
		epochs[epoch] = true
		if detach {
			must(t, p.CatchUp(t.Context()))
			must(t, p.Detach(t.Context()))
		} else {
			must(t, p.Synchronous(t.Context()))
		}
		execSQL(t, p.DatabaseURL(), "INSERT INTO kept VALUES (1)")
		old := p.Primary()
		p.KillPrimary()
		must(t, p.Promote(t.Context()))
		if p.Primary() == old {
			t.Fatal("Promote did not change the primary")
		}
		want := []string{"1", "1", "2", "2"}[round]
		if got := query(t, p.DatabaseURL(), "SELECT count(*)::text FROM kept"); got != want {
			t.Errorf("after promotion %d there are %s rows, want %s", round+1, got, want)
		}
		must(t, p.Rejoin(t.Context()))
		got := query(t, p.Standby().DatabaseURL, "SELECT pg_is_in_recovery() || ' ' || count(*) FROM kept")
		if got != "true "+want {
			t.Errorf("the standby returned %s", got)
		}
	}
	select {
	case err := <-p.Primary().Died():
		t.Errorf("Died reported a requested stop: %v", err)
	case err := <-p.Standby().Died():
		t.Errorf("Died reported a requested stop: %v", err)
	default:
	}
}

func TestPairRefusesCertificates(t *testing.T) {
	t.Parallel()
	if _, err := TempPair(t.Context(), Options{Ephemeral: true, Certificates: new(Certificates)}); err == nil {
		t.Error("a pair has started with certificates")
	}
}

// A backup of a primary under replication verifies, and is removed.
func TestPairBackup(t *testing.T) {
	t.Parallel()
	pair, err := TempPair(t.Context(), Options{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pair.Stop(context.Background()) })
	if size, err := pair.Backup(t.Context()); err != nil || size < 1_000_000 {
		t.Errorf("a backup of %d bytes: %v", size, err)
	}
	if size, err := pair.Backup(t.Context()); err != nil || size < 1_000_000 {
		t.Errorf("the second backup of %d bytes: %v", size, err)
	}
}
