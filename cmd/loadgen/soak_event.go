package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing/fstest"
	"time"

	"partnerbilling/migrations"
)

// soakEvent is a scheduled event of a soak run: an act of operators, or a failure.
type soakEvent struct {
	At   time.Duration `json:"at"` // since the beginning of the load
	Kind soakPhase     `json:"kind"`
}

// soakSchedule returns the events of a run in their order, which the seed determines. Each event
// has an equal part of the duration. The migration is in the middle, when the tables have rows. The
// last event is a rolling restart, so that processes also start on the migrated schema.
func soakSchedule(seed uint64, duration time.Duration, restarts, failovers int) []soakEvent {
	random := rand.New(rand.NewPCG(seed, 0)) // repeatable on purpose
	kinds := []soakPhase{phaseBackup}
	for range restarts - 1 {
		kinds = append(kinds, phaseRestart)
	}
	for range failovers {
		kinds = append(kinds, phaseFailover)
	}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = append(slices.Insert(kinds, len(kinds)/2, phaseMigration), phaseRestart)
	events, part := make([]soakEvent, len(kinds)), duration/time.Duration(len(kinds))
	for i, kind := range kinds {
		events[i] = soakEvent{At: time.Duration(i)*part + between(random, 0, part/3), Kind: kind}
	}
	return events
}

// runEvents runs the events one after another. Each begins at its time, or when the one before has
// ended.
func (s *soak) runEvents(ctx context.Context, began time.Time) error {
	do := map[soakPhase]func(context.Context) (string, error){
		phaseRestart: s.restartFleet, phaseFailover: s.failOverUnderLoad, phaseMigration: s.migrate,
		phaseBackup: s.backUp,
	}
	for _, event := range s.schedule {
		if err := wait(ctx, time.Until(began.Add(event.At))); err != nil {
			return err
		}
		at := time.Now()
		done, err := do[event.Kind](ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", event.Kind, err)
		}
		s.events[event.Kind]++
		s.printf("%s: %s, %s; %d requests so far", at.Sub(began).Round(time.Second), event.Kind, done,
			s.load.sent.Load())
	}
	return nil
}

// restartFleet replaces all APIs and workers. Like the other events, it returns a text for the line
// of progress.
func (s *soak) restartFleet(ctx context.Context) (string, error) {
	defer s.soakFleet.recorder.begin(phaseRestart)()
	began := time.Now()
	err := s.soakFleet.restart(ctx)
	return "took " + time.Since(began).Round(time.Second).String(), err
}

// failOverUnderLoad kills the primary, promotes the standby, and rebuilds the old primary. The
// phase of the failover ends when every API is ready again. failOverUnderLoad returns when the new
// standby has caught up, and the replication is synchronous again.
func (s *soak) failOverUnderLoad(ctx context.Context) (string, error) {
	var done promotion
	end := s.soakFleet.recorder.begin(phaseFailover)
	err := s.replacePrimary(ctx, &done)
	if err == nil {
		err = s.soakFleet.awaitAPIs(ctx)
	}
	end()
	if err != nil {
		return "", err
	}
	defer s.soakFleet.recorder.begin(phaseRebuild)()
	if err := s.rebuildStandby(ctx, &done); err != nil {
		return "", err
	}
	s.promotions = append(s.promotions, done)
	if done.Answered > maxAnswerDelay {
		s.soakFleet.recorder.breach("a late answer after a failover", "%s after the readiness", done.Answered)
	}
	return fmt.Sprintf("promoted after %s, good answer %s later, standby rebuilt in %s",
		done.Promoted.Round(time.Millisecond), done.Answered.Round(time.Millisecond),
		done.Rebuilt.Round(time.Millisecond)), s.soakFleet.pair.Synchronous(ctx)
}

// backUp takes a base backup of the primary and verifies it.
func (s *soak) backUp(ctx context.Context) (string, error) {
	defer s.soakFleet.recorder.begin(phaseBackup)()
	began := time.Now()
	size, err := s.soakFleet.pair.Backup(ctx)
	return fmt.Sprintf("%d MB in %s, verified", size/1e6, time.Since(began).Round(10*time.Millisecond)), err
}

// soakMigrations are migrations such as a later release may have. They change tables that requests
// and workers use all the time.
var soakMigrations = fstest.MapFS{
	"9001_batch_channel.tx.up.sql": {Data: []byte(`ALTER TABLE batches ADD COLUMN channel text;
ALTER TABLE batches ADD CONSTRAINT batches_channel CHECK (channel <> '') NOT VALID;
`)},
	"9002_intent_channel.tx.up.sql": {Data: []byte(`ALTER TABLE payment_intents ADD COLUMN channel text;
ALTER TABLE payment_intents ADD CONSTRAINT payment_intents_channel CHECK (channel <> '') NOT VALID;
`)},
	"9003_index.up.sql": {Data: []byte(`DROP INDEX CONCURRENTLY IF EXISTS batches_by_channel;
CREATE INDEX CONCURRENTLY batches_by_channel ON batches (site_id, channel, id);
DROP INDEX CONCURRENTLY IF EXISTS customer_links_by_trace;
CREATE INDEX CONCURRENTLY customer_links_by_trace ON customer_links (trace_id);
ANALYZE batches;
ANALYZE customer_links;
`)},
	"9004_validate.up.sql": {Data: []byte(`ALTER TABLE batches VALIDATE CONSTRAINT batches_channel;
ALTER TABLE payment_intents VALIDATE CONSTRAINT payment_intents_channel;
`)},
}

// migrate applies soakMigrations.
func (s *soak) migrate(ctx context.Context) (string, error) {
	defer s.soakFleet.recorder.begin(phaseMigration)()
	all, err := withMigrations(soakMigrations)
	if err != nil {
		return "", err
	}
	began := time.Now()
	n, err := migrations.UpFrom(ctx, s.fleet.store.DB(), all)
	if err == nil && n != len(soakMigrations) {
		err = fmt.Errorf("%d migrations applied of %d", n, len(soakMigrations))
	}
	return fmt.Sprintf("%d files in %s", n, time.Since(began).Round(time.Millisecond)), err
}

// withMigrations returns the migrations of the service together with later ones.
func withMigrations(later fstest.MapFS) (fs.FS, error) {
	all := fstest.MapFS{}
	for name, file := range later {
		all[name] = file
	}
	own := migrations.Files()
	names, err := fs.Glob(own, "*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(own, name)
		if err != nil {
			return nil, err
		}
		all[name] = &fstest.MapFile{Data: text}
	}
	return all, nil
}
