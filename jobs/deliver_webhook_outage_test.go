package jobs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models"
	"partnerbilling/models/coalesce"
	"partnerbilling/models/modelstest"
)

// transactions is a query hook that counts the transactions that begin.
type transactions struct{ atomic.Int64 }

func (n *transactions) BeforeQuery(ctx context.Context, q *bun.QueryEvent) context.Context {
	if q.Query == "BEGIN" {
		n.Add(1)
	}
	return ctx
}

func (*transactions) AfterQuery(context.Context, *bun.QueryEvent) {}

// While Postgres hangs, the claims of a batch are not made again one by one.
func TestOutageDoesNotMultiplyClaims(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	store := modelstest.Connect(t, dsn)
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var began transactions
	var batches atomic.Int64
	store.DB().AddQueryHook(&began) //nolint:staticcheck // WithQueryHook returns another DB than the store's
	d := NewDeliverWebhook(Config{Store: store})
	d.claims.calm.Call = func(ctx context.Context, claims []models.WebhookClaim) ([]models.WebhookClaimed, error) {
		batches.Add(1)
		ctx, cancel := context.WithTimeoutCause(ctx, 200*time.Millisecond, coalesce.ErrTimeout)
		defer cancel()
		return d.claimMany(ctx, claims)
	}
	line.Freeze()
	const claims = 20
	var claiming sync.WaitGroup
	for range claims {
		claiming.Go(func() {
			if _, err := d.claim(t.Context(), models.TaskID{1}, false); !errors.Is(err, models.ErrUnavailable) {
				t.Errorf("a claim: %v", err)
			}
		})
	}
	claiming.Wait()
	if n, allowed := began.Load(), batches.Load(); n > allowed {
		t.Errorf("%d claims began %d transactions, want at most the %d of their batches", claims, n, allowed)
	}
}
