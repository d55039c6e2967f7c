package modelstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// ReplicaWait is how long a read of a Replicated waits for the replica. It is long enough for a
// busy machine.
const ReplicaWait = 2 * time.Second

// Replicated is a store on a primary of its own, with a replica: a standby that follows the
// primary.
type Replicated struct {
	*models.Store
	Pair       *local.Pair // the two servers
	Line       *Line       // proxy between the store and the replica
	ReplicaURL string      // of the replica, through the line

	t testing.TB
}

// OpenReplicated starts the servers and opens the store. They end with the test.
func OpenReplicated(t testing.TB) *Replicated {
	t.Helper()
	pair, err := local.TempPair(t.Context(), local.Options{Ephemeral: true})
	if err != nil {
		t.Fatalf("modelstest: %v", err)
	}
	t.Cleanup(func() { _ = pair.Stop(context.Background()) })
	r := &Replicated{Pair: pair, t: t}
	r.Line, r.ReplicaURL = Wire(t, pair.Standby().DatabaseURL)
	r.Store, err = models.Open(postgres.Config{DSN: pair.DatabaseURL(), ApplicationName: "test"})
	r.must(err)
	r.SetKeyring(Keyring(t, MasterKey))
	replica, err := models.OpenReplica(postgres.Config{
		DSN: r.ReplicaURL, ApplicationName: "replica", ReplicaWait: ReplicaWait,
	})
	r.must(err)
	r.UseReplica(replica)
	t.Cleanup(func() { r.must(errors.Join(replica.Close(), r.Store.Close())) })
	Migrate(t, r.Store)
	r.AwaitReplica()
	return r
}

func (r *Replicated) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("modelstest: replica: %v", err)
	}
}

// AwaitReplica waits until reads use the replica.
func (r *Replicated) AwaitReplica() {
	r.t.Helper()
	r.Await("reads use the replica", func() bool {
		before := r.Served()
		_, err := r.Now(models.ReadReplica(r.t.Context()))
		r.must(err)
		return r.Served() > before
	})
}

// Await calls done until it returns true. It fails the test after a minute, with what as the
// reason.
func (r *Replicated) Await(what string, done func() bool) {
	r.t.Helper()
	await(r.t, what, func(context.Context) (bool, error) { return done(), nil })
}

// Served returns the number of reads that the replica has answered.
func (r *Replicated) Served() int64 { return r.ReplicaState(r.t.Context()).Served }

// FellBack returns the number of contexts whose reads turned from the replica to the primary, for
// any reason.
func (r *Replicated) FellBack() (n int64) {
	for _, reads := range r.ReplicaState(r.t.Context()).Fallbacks {
		n += reads
	}
	return n
}

// OnReplica runs read and fails the test unless the replica answers its reads, at least one. It
// notices only reads whose context is from models.ReadReplica: all others use the primary. what
// names the reads in the failure.
func (r *Replicated) OnReplica(what string, read func()) {
	r.t.Helper()
	served, fellBack := r.Served(), r.FellBack()
	read()
	if r.Served() == served || r.FellBack() != fellBack {
		r.t.Errorf("%s: the replica answered %d reads, and the primary %d instead: %+v", what, r.Served()-served,
			r.FellBack()-fellBack, r.ReplicaState(r.t.Context()))
	}
}
