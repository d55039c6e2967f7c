package main

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"

	"partnerbilling/deploy/local"
)

// fault is a disturbance of the fleet, with the alerts that it must provoke.
type fault struct {
	name   string
	fires  []string // alerts that must fire
	pages  []string // if set, exactly these must page while the fault lasts
	begin  func(context.Context, *fleet) (end, error)
	longer time.Duration // replaces the usual bound of the wait for the alerts, if it is above
}

// end ends a fault. It is nil for a fault that ends by itself, that a later fault ends, or that
// lasts until the end of the run.
type end func(context.Context) error

// within returns the bound of the wait for the alerts.
func (f fault) within() time.Duration { return max(f.longer, 90*time.Second) }

// watch returns how long a run looks for further pages once the expected alerts fire.
func (f fault) watch() time.Duration {
	if f.pages != nil {
		return 15 * time.Second
	}
	return 0
}

// lasting are the alerts that go on firing after their fault: until an operator ends them, or until
// the end of the run.
var lasting = []string{
	"SvcLateTruth", "SvcRowsUnconfirmed", "SvcTransactionInDoubt", "SvcWebhooksGivenUp", "SvcReconciliationFinding",
	"SvcStandbyLost", "SvcCheckoutBudget", "SvcWebhooksBudget", "SvcApiErrorsSlow", "SvcAuditBehind",
	"SvcAuditViolation", "SvcReplicaUnusable",
}

// faults lists the faults in the order in which a run provokes them. The last faults need it: each
// builds on the state that the one before it leaves.
var faults = []fault{
	{
		name: "Redis is killed", fires: []string{"SvcRedisUnreachable", "SvcCheckoutLate", "SvcDispatchStopped"},
		pages: []string{"SvcRedisUnreachable"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			f.redis.Redis.Kill()
			return f.redis.Redis.Start, nil
		},
	}, {
		name: "Redis is full", fires: []string{"SvcRedisRefuses", "SvcCheckoutLate"},
		pages: []string{"SvcRedisRefuses"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			return func(ctx context.Context) error { return f.setMemory(ctx, "0") }, f.setMemory(ctx, "1")
		},
	}, {
		name: "Postgres is stopped", fires: []string{"SvcPostgresUnreachable", "SvcApiErrorsFast", "SvcWorkersAbsent"},
		pages: []string{"SvcPostgresUnreachable"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			server := f.postgres.Primary().Postgres
			return server.Start, server.Stop(ctx, local.Immediate)
		},
	}, {
		name: "a table is locked", fires: []string{"SvcApiSlow", "SvcApiBusy"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			unlock, err := f.open(ctx, "BEGIN; LOCK TABLE payment_intents IN ACCESS EXCLUSIVE MODE")
			if err != nil {
				return nil, err
			}
			stop := repeat(ctx, 20*time.Millisecond, func(ctx context.Context) { _ = f.pay(ctx) })
			return func(ctx context.Context) error { return errors.Join(stop(ctx), unlock(ctx)) }, nil
		},
	}, {
		name: "all workers end", fires: []string{"SvcWorkersAbsent"}, pages: []string{"SvcWorkersAbsent"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			f.kill("worker-1", "worker-2")
			return f.launchWorkers, nil
		},
	}, {
		name: "the API ends", fires: []string{"SvcApiAbsent"}, pages: []string{"SvcApiAbsent"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			f.kill("api")
			return func(context.Context) error { return f.launch("api") }, nil
		},
	}, {
		name: "a worker crashes again and again", fires: []string{"SvcRestarting"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			for range 4 {
				f.kill("worker-2")
				if err := errors.Join(f.launch("worker-2"),
					awaitURL(ctx, "http://"+f.ops["worker-2"]+"/readyz")); err != nil {
					return nil, err
				}
				<-time.After(2 * time.Second) // two scrapes
			}
			return nil, nil
		},
	}, {
		name: "workers serve no sweeps, and some tasks wait", fires: []string{"SvcSweepsLate", "SvcDebitsLate"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			f.kill("worker-1", "worker-2")
			restart := func(ctx context.Context) error {
				f.kill("worker-1", "worker-2")
				return f.launchWorkers(ctx)
			}
			return restart, errors.Join(f.launch("worker-1", "checkout", "webhooks"),
				f.launch("worker-2", "checkout", "webhooks"))
		},
	}, {
		name: "the partner's endpoint answers 410", fires: []string{"SvcWebhooksGivenUp"},
		begin: func(_ context.Context, f *fleet) (end, error) { return f.breakReceiver(http.StatusGone), nil },
	}, {
		name: "the partner's endpoint answers 500", fires: []string{"SvcWebhookEndpointsDown"}, longer: 5 * time.Minute,
		begin: func(_ context.Context, f *fleet) (end, error) {
			return f.breakReceiver(http.StatusInternalServerError), nil
		},
	}, {
		name: "the rail hangs", fires: []string{"SvcRailUnavailable", "SvcTransactionInDoubt"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			return func(context.Context) error { return f.signalRail(syscall.SIGCONT) }, f.signalRail(syscall.SIGSTOP)
		},
		longer: 3 * time.Minute,
	}, {
		name: "wrong tokens and secrets", fires: []string{"SvcUnauthorized", "SvcClientAuthenticationFailing"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			return repeat(ctx, 100*time.Millisecond, func(ctx context.Context) {
				f.get(ctx, "api", "/webhooks/endpoints", "Bearer nonsense")
				wrong := &fleet{addresses: f.addresses, basic: "Basic Y2xpX3g6eA=="}
				_ = wrong.authenticate(ctx)
			}), nil
		},
	}, {
		name: "a client exceeds its rate", fires: []string{"SvcRateLimited"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			return repeat(ctx, 5*time.Millisecond, func(ctx context.Context) {
				f.get(ctx, "api", "/webhooks/endpoints", f.bearer())
			}), nil
		},
	}, {
		name: "an operator's password is guessed", fires: []string{"SvcOperatorLoginsRefused"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			return repeat(ctx, 50*time.Millisecond, func(ctx context.Context) {
				f.get(ctx, "dashboard", "/ops/queues", "Basic b3BlcmF0b3I6Z3Vlc3M=")
			}), nil
		},
	}, {
		name: "a transaction stays open", fires: []string{"SvcTransactionOld"},
		begin: func(ctx context.Context, f *fleet) (end, error) { return f.open(ctx, "BEGIN; SELECT 1") },
	}, {
		name: "a debit is on the rail that the ledger does not know", fires: []string{"SvcReconciliationFinding"},
		begin:  func(ctx context.Context, f *fleet) (end, error) { return nil, f.plantDebit(ctx) },
		longer: 5 * time.Minute,
	}, {
		name: "a standby falls behind", fires: []string{"SvcReplicationBehind", "SvcReplicaUnusable"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			standby := f.postgres.Standby().DatabaseURL
			resume := func(ctx context.Context) error { return onServer(ctx, standby, "SELECT pg_wal_replay_resume()") }
			return resume, errors.Join(onServer(ctx, standby, "SELECT pg_wal_replay_pause()"),
				f.sql(ctx, "CREATE TABLE much AS SELECT g, repeat('x', 100) FROM generate_series(1, 50000) g;"+
					" DROP TABLE much"))
		},
	}, {
		name: "a standby is lost", fires: []string{"SvcStandbyLost"},
		begin: func(_ context.Context, f *fleet) (end, error) {
			f.postgres.Standby().Postgres.KillAll()
			return nil, nil
		},
	}, {
		name: "the rail hangs all day", fires: []string{"SvcBatchDeadlineNear", "SvcReconciliationBehind"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			return nil, errors.Join(f.signalRail(syscall.SIGSTOP), f.submit(ctx),
				f.moveClock(ctx, 21*time.Hour))
		},
	}, {
		name: "the day ends, and the rail answers afterwards", fires: []string{"SvcRowsUnconfirmed", "SvcLateTruth"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			if err := f.moveClock(ctx, 4*time.Hour); err != nil {
				return nil, err
			}
			<-time.After(20 * time.Second) // the deadline passes, and rows end as unconfirmed
			return nil, f.signalRail(syscall.SIGCONT)
		},
		longer: 4 * time.Minute,
	}, {
		name: "no worker closes batches or audits", fires: []string{"SvcBatchPastDeadline", "SvcAuditBehind"},
		begin: func(ctx context.Context, f *fleet) (end, error) {
			f.kill("worker-1", "worker-2")
			return nil, errors.Join(f.submit(ctx), f.moveClock(ctx, 8*24*time.Hour),
				f.launch("worker-1", "webhooks"))
		},
	},
}

// unprovoked holds the alerts that no fault lists in fires, each with the reason why only
// alerts_test.yaml tests it.
var unprovoked = map[string]string{
	"SvcApiErrorsSlow":      "needs errors for half an hour at a low rate",
	"SvcApiBodiesRefused":   "needs many large bodies; loadgen hostile makes them",
	"SvcApiConnectionsFull": "needs more connections than one process opens; loadgen hostile makes them",
	"SvcRailContradiction":  "needs a rail that breaks its contract",
	"SvcRailUndecidable":    "needs a rail that breaks its contract",
	"SvcPartyUnreadable":    "needs a lost master key",
	"SvcReconciliationGap":  "needs a rail that drops debits from its list",
	"SvcAuditViolation":     "needs a fault in the service itself",
	"SvcWraparoundNear":     "needs half a billion transactions",
	"SvcArchiveFailing":     "needs a server with an archive",
	"SvcWebhooksFailing":    "fires beside SvcWebhookEndpointsDown, unless the only endpoint is parked first",
	"SvcWebhooksLate":       "follows from a dead Redis, and from a fleet without webhook workers",
	"SvcCheckoutBudget":     "needs six hours of history",
	"SvcWebhooksBudget":     "needs six hours of history",
	"SvcPaused":             "an operator's act, not a fault",
	"SvcPartitionsMissing":  "needs weeks without a worker that makes partitions",
}
