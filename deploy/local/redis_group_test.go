package local

import (
	"context"
	"testing"
	"time"
)

func TestSentinelsFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	certs, err := NewCertificates(t.TempDir())
	must(t, err)
	for name, certs := range map[string]*Certificates{"plain": nil, "TLS": certs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := TempSentinels(t.Context(), 1, 300*time.Millisecond, certs)
			must(t, err)
			t.Cleanup(func() { must(t, g.Stop(context.Background())) })
			old, err := g.Master(t.Context())
			must(t, err)
			old.Redis.Kill()
			_, err = g.AwaitFailover(t.Context(), old)
			must(t, err)
		})
	}
}

func TestClusterFailsOverAndMovesASlot(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	certs, err := NewCertificates(t.TempDir())
	must(t, err)
	for name, certs := range map[string]*Certificates{"plain": nil, "TLS": certs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := TempCluster(t.Context(), 3, 500*time.Millisecond, certs)
			must(t, err)
			t.Cleanup(func() { must(t, c.Stop(context.Background())) })
			const key = "{debits}"
			old, err := c.Master(t.Context(), key)
			must(t, err)
			old.Redis.Kill()
			master, err := c.AwaitFailover(t.Context(), key, old)
			must(t, err)
			must(t, old.Redis.Start(t.Context()))
			must(t, c.AwaitReplicas(t.Context()))
			for _, other := range []string{"{checkout}", "{webhooks}", "{sweeps}"} {
				to, err := c.Master(t.Context(), other)
				must(t, err)
				if to == master {
					continue
				}
				must(t, c.MoveSlot(t.Context(), key, to))
				got, err := c.Master(t.Context(), key)
				must(t, err)
				if got != to {
					t.Error("the slot is still at its old master")
				}
				return
			}
			t.Error("all queues are on one master")
		})
	}
}
