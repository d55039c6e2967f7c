package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/models"
)

// The kinds of Redis deployments whose masters a failover run can kill.
const (
	redisSentinel = "sentinel"
	redisCluster  = "cluster"
)

const (
	// haDownAfter is the time without an answer after which a master counts as dead.
	haDownAfter = time.Second
	// maxRedisRecovery is the maximum time from a promotion until a batch that was submitted during
	// the outage is settled.
	maxRedisRecovery = 10 * time.Second
	// firstProbeAmount is the lower bound of the probes' amounts, in minor units. All other rows
	// and payments have smaller amounts, so that an amount tells whether a debit belongs to a
	// probe.
	firstProbeAmount = 2_000_000_000
	// probeCustomer is a customer of the last Site, for probes only.
	probeCustomer = "probe"
)

// redisGroup is a Redis deployment with replicas, which fails over by itself.
type redisGroup interface {
	// URL returns the URL of the whole deployment.
	URL() string
	// Stop stops all servers.
	Stop(ctx context.Context) error
	// Detach makes a replica miss all later writes of its master, until Attach.
	Detach(ctx context.Context, replica *local.Servers) error
	// Attach ends a Detach.
	Attach(ctx context.Context, replica *local.Servers) error
	// AwaitReplicas waits until each master has its replicas, as a failover needs.
	AwaitReplicas(ctx context.Context) error
}

// openRedis starts the Redis of the fleet: a deployment of the planned kind, or a single server.
func (f *haFleet) openRedis(ctx context.Context) (err error) {
	switch f.plan.Redis {
	case redisSentinel:
		f.sentinels, err = local.TempSentinels(ctx, 2, haDownAfter, nil)
	case redisCluster:
		f.cluster, err = local.TempCluster(ctx, 3, haDownAfter, nil)
	default:
		f.cache, err = local.Temp(ctx, local.Options{WithoutPostgres: true, Ephemeral: true})
	}
	return err
}

func (f *haFleet) redisURL() string {
	if group := f.redisGroup(); group != nil {
		return group.URL()
	}
	return f.cache.RedisURL
}

// redisGroup returns the Redis deployment of the fleet. It returns nil if the fleet has a single
// Redis server, which no failover run kills.
func (f *haFleet) redisGroup() redisGroup {
	switch {
	case f.sentinels != nil:
		return f.sentinels
	case f.cluster != nil:
		return f.cluster
	default:
		return nil
	}
}

// failRedis kills a master of Redis under load, waits for the promotion of a replica, and starts
// the old master as a replica. If loss is set, the replicas lag before the kill, so that tasks are
// lost. In a Cluster, it finally moves a slot.
func (h *ha) failRedis(ctx context.Context, loss bool) (promotion, error) {
	done := promotion{Loss: loss}
	if err := wait(ctx, between(h.random, promotionInterval/5, promotionInterval*4/5)); err != nil {
		return done, err
	}
	f := h.fleet
	group := f.redisGroup()
	keys := make([]string, 0, len(models.Queues))
	for _, q := range models.Queues {
		keys = append(keys, "{"+string(q)+"}")
	}
	key := keys[h.random.IntN(len(keys))]
	old, replicas, err := f.redisMaster(ctx, key)
	if err != nil {
		return done, err
	}
	if loss {
		for _, replica := range replicas {
			if err := group.Detach(ctx, replica); err != nil {
				return done, fmt.Errorf("let the replica lag: %w", err)
			}
		}
		if err := wait(ctx, between(h.random, 300*time.Millisecond, 1500*time.Millisecond)); err != nil {
			return done, err
		}
	}
	f.observed.outage(true)
	died := time.Now()
	old.Redis.Kill()
	probe, err := f.submitProbe(ctx)
	if err != nil {
		return done, err
	}
	if err := f.awaitPromotion(ctx, key, old); err != nil {
		return done, err
	}
	promoted := time.Now()
	done.Promoted = promoted.Sub(died)
	if _, err := f.prober.api.AwaitBatch(ctx, f.prober.site, probe); err != nil {
		return done, fmt.Errorf("a batch of the outage does not settle: %w", err)
	}
	done.Answered = time.Since(promoted)
	f.observed.outage(false)
	if loss {
		for _, replica := range replicas {
			if err := group.Attach(ctx, replica); err != nil {
				return done, err
			}
		}
	}
	if err := old.Redis.Start(ctx); err != nil {
		return done, err
	}
	if err := group.AwaitReplicas(ctx); err != nil {
		return done, fmt.Errorf("rebuild the old master as a replica: %w", err)
	}
	done.Rebuilt = time.Since(promoted)
	return done, f.moveSlot(ctx, key, keys)
}

// redisMaster returns the master that holds a queue's key, and the master's replicas.
func (f *haFleet) redisMaster(ctx context.Context, key string) (*local.Servers, []*local.Servers, error) {
	if f.cluster != nil {
		master, err := f.cluster.Master(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		replica, err := f.cluster.Replica(ctx, master)
		return master, []*local.Servers{replica}, err
	}
	master, err := f.sentinels.Master(ctx)
	replicas := slices.DeleteFunc(slices.Clone(f.sentinels.Servers()),
		func(s *local.Servers) bool { return s == master })
	return master, replicas, err
}

// awaitPromotion waits until another server than old is the master that holds the key.
func (f *haFleet) awaitPromotion(ctx context.Context, key string, old *local.Servers) (err error) {
	if f.cluster != nil {
		_, err = f.cluster.AwaitFailover(ctx, key, old)
	} else {
		_, err = f.sentinels.AwaitFailover(ctx, old)
	}
	return err
}

// moveSlot moves the Cluster slot of a queue's key to another master, which holds one of the other
// keys. It does nothing if there is no Cluster or no such master.
func (f *haFleet) moveSlot(ctx context.Context, key string, others []string) error {
	if f.cluster == nil {
		return nil
	}
	from, err := f.cluster.Master(ctx, key)
	if err != nil {
		return err
	}
	for _, other := range others {
		to, err := f.cluster.Master(ctx, other)
		if err != nil {
			return err
		}
		if to != from {
			return f.cluster.MoveSlot(ctx, key, to)
		}
	}
	return nil
}

// signUpProbe creates the customer of submitProbe.
func (f *haFleet) signUpProbe(ctx context.Context, site models.SiteID) error {
	link, _, err := f.store.CreateInvitation(ctx,
		models.NewInvitation{SiteID: site, CustomerReference: probeCustomer}, nil)
	if err != nil {
		return err
	}
	party := models.Party{CustomerID: link.ID.String(), AgreementID: link.ID.String()}
	_, err = f.store.CompleteLink(ctx, link.ID, party)
	return errors.Join(err, f.railStore.OpenSandboxAccount(ctx, link.ID.String(), models.BehaviourPays))
}

// submitProbe submits a batch of one row until it is acknowledged, and returns its reference.
func (f *haFleet) submitProbe(ctx context.Context) (string, error) {
	f.prober.batches++
	b := client.Batch{
		BatchReference: fmt.Sprintf("probe %d", f.prober.batches),
		Rows: []client.Row{{
			CustomerReference: probeCustomer, RowReference: "0", Amount: firstProbeAmount + int64(f.prober.batches),
		}},
	}
	return b.BatchReference, retryUnavailable(ctx, func() error {
		_, err := f.prober.api.SubmitBatch(ctx, f.prober.site, b)
		return err
	})
}
