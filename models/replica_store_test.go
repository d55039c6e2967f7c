package models_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// replicated is a store with a replica, and a batch.
type replicated struct {
	*modelstest.Replicated
	*testing.T
	site models.Site
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{Replicated: modelstest.OpenReplicated(t), T: t}
	r.site = modelstest.Site(t, r.Store)
	modelstest.Customer(t, r.Store, r.site.ID, "ada", models.BehaviourPays)
	modelstest.Submit(t, r.Store, modelstest.Batch(r.site, "first", "ada"))
	return r
}

// submit stores a batch, which a read right afterwards must find within a bound.
func (r *replicated) submit(reference string, within time.Duration) {
	r.Helper()
	modelstest.Submit(r.T, r.Store, modelstest.Batch(r.site, reference, "ada"))
	began := time.Now()
	_, rows, err := r.GetBatch(models.ReadReplica(r.Context()), r.site.ID, reference)
	if err != nil || len(rows) != 1 {
		r.Fatalf("batch %s: %v, %v", reference, rows, err)
	}
	if took := time.Since(began); took > within {
		r.Errorf("reading batch %s took %s, want at most %s", reference, took, within)
	}
}

// fallbacks returns the number of reads that went to the primary for a reason.
func (r *replicated) fallbacks(reason postgres.Fallback) int64 {
	return r.ReplicaState(r.Context()).Fallbacks[reason]
}

// tried is more than a read waits for the replica; skipped is less.
const (
	tried   = modelstest.ReplicaWait + 2*time.Second
	skipped = modelstest.ReplicaWait / 2
)

// The replica answers reads, always with what was committed before. Replay that pauses, a killed
// server, a frozen network and a promotion send them to the primary, with one short delay. Reads
// return to the replica afterwards.
func TestReplica(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	for _, reference := range []string{"a", "b", "c"} {
		r.OnReplica("a batch just submitted", func() { r.submit(reference, tried) })
	}
	for _, fault := range []struct {
		name       string
		reason     postgres.Fallback
		begin, end func(context.Context) error
	}{
		{"replay pauses", postgres.FallbackBehind, r.Pair.PauseReplay, r.Pair.ResumeReplay},
		{
			"the server is killed", postgres.FallbackUnavailable,
			func(context.Context) error { r.Pair.Standby().Postgres.KillAll(); return nil },
			r.Pair.Standby().Postgres.Start,
		},
		{
			"the network freezes", postgres.FallbackUnavailable,
			func(context.Context) error { r.Line.Freeze(); return nil },
			func(context.Context) error { r.Line.Thaw(); r.Line.Release(); return nil },
		},
	} {
		before := r.fallbacks(fault.reason)
		must(t, fault.begin(t.Context()))
		r.submit(fault.name, tried)
		if r.fallbacks(fault.reason) == before {
			t.Errorf("%s: %+v", fault.name, r.ReplicaState(t.Context()))
		}
		r.submit(fault.name+", again", skipped)
		must(t, r.Ping(t.Context()))
		must(t, fault.end(t.Context()))
		r.AwaitReplica()
		r.OnReplica("after "+fault.name, func() { r.submit("after "+fault.name, tried) })
	}
	must(t, r.Pair.CatchUp(t.Context()))
	r.Pair.KillPrimary()
	must(t, r.Pair.Promote(t.Context()))
	r.Await("the store has found the new primary", func() bool { return r.Ping(t.Context()) == nil })
	r.submit("on the promoted server", tried)
	if state := r.ReplicaState(t.Context()); state.Err == nil {
		t.Errorf("the primary counts as its own replica: %+v", state)
	}
}

// A replica that lags for good costs one read in five seconds the wait for it.
func TestReplicaIsSkippedWhileBehind(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	must(t, r.Pair.PauseReplay(t.Context()))
	for i := range 20 {
		r.submit(fmt.Sprint(i), tried)
	}
	if n := r.fallbacks(postgres.FallbackBehind); n > 3 {
		t.Errorf("%d of 20 reads have waited for the replica", n)
	}
	if state := r.ReplicaState(t.Context()); !errors.Is(state.Err, postgres.ErrReplicaBehind) || state.Lag <= 0 {
		t.Errorf("the state of a replica behind: %+v", state)
	}
	must(t, r.Pair.ResumeReplay(t.Context()))
	r.AwaitReplica()
	if state := r.ReplicaState(t.Context()); state.Err != nil || state.Lag != 0 {
		t.Errorf("the state of a replica that has caught up: %+v", state)
	}
}

// A standby whose record of the history differs is not used, although it has replayed everything.
func TestReplicaOfAnotherHistory(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	_, err := r.DB().ExecContext(t.Context(), "UPDATE database_epoch SET timeline = 'FFFFFFFF'")
	must(t, err)
	r.submit("foreign", tried)
	if state := r.ReplicaState(t.Context()); !errors.Is(state.Err, postgres.ErrReplicaForeign) {
		t.Errorf("the state: %+v", state)
	}
	_, err = r.Epoch(t.Context()) // records the server's own
	must(t, err)
	r.AwaitReplica()
}

// A read that finds a batch past its deadline settles it on the primary, and shows it settled.
func TestReplicaSettlesOverdueBatches(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	modelstest.AdvanceClock(t, r.Store, models.SettleWithin+time.Hour)
	ctx := models.ReadReplica(t.Context())
	batch, rows, err := r.GetBatch(ctx, r.site.ID, "first")
	if err != nil || batch.State != models.BatchSettled || rows[0].Outcome != models.OutcomeTimedOut {
		t.Errorf("an overdue batch: %+v, %+v, %v", batch, rows, err)
	}
	before := r.Served()
	if _, err := r.Now(ctx); err != nil || r.Served() != before {
		t.Errorf("a read after the write: %v, and the replica answered %d", err, r.Served()-before)
	}
	if state := r.ReplicaState(t.Context()); state.Fallbacks[postgres.FallbackRefused] != 0 {
		t.Errorf("the replica was asked to write: %+v", state)
	}
}

// Without ReadReplica the replica gets no statement.
func TestReplicaIsForReadReplicaAlone(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	served, fellBack := r.Served(), r.FellBack()
	_, _, err := r.GetBatch(t.Context(), r.site.ID, "first")
	must(t, err)
	_, err = r.Organisation(t.Context(), r.site.OrganisationID)
	must(t, err)
	if r.Served() != served || r.FellBack() != fellBack {
		t.Errorf("the replica answered %d reads", r.Served()-served)
	}
}
