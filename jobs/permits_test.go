package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func TestPermitsGoInWaves(t *testing.T) {
	p := NewPermits(64) // waves of 8
	if n := p.Take(t.Context(), 60); n != 60 {
		t.Fatalf("took %d of 60", n)
	}
	got := make(chan int, 2)
	go func() { got <- p.Take(t.Context(), 100) }()
	waitForWaiters(p, 1)
	p.Give(3)
	select {
	case n := <-got:
		t.Fatalf("a wave of %d, with 7 free", n)
	default:
	}
	p.Give(1)
	if n := <-got; n != 8 {
		t.Errorf("a wave of %d, want 8", n)
	}
	p.Give(2)
	if n := p.Take(t.Context(), 1); n != 1 { // who wants less than a wave need not wait for one
		t.Errorf("took %d of 1", n)
	}
}

func TestPermitsOfWhoLeftGoToTheNext(t *testing.T) {
	p := NewPermits(1)
	p.Take(t.Context(), 1)
	ctx, leave := context.WithCancel(t.Context())
	left, next := make(chan int), make(chan int)
	go func() { left <- p.Take(ctx, 1) }()
	waitForWaiters(p, 1)
	go func() { next <- p.Take(t.Context(), 1) }()
	waitForWaiters(p, 2)
	leave()
	if n := <-left; n != 0 {
		t.Errorf("took %d after the context's end", n)
	}
	p.Give(1)
	if n := <-next; n != 1 {
		t.Errorf("the next took %d", n)
	}
}

func waitForWaiters(p *Permits, n int) {
	for {
		p.mu.Lock()
		waiting := p.waiting.Len()
		p.mu.Unlock()
		if waiting >= n {
			return
		}
	}
}

// TestPermitsAreNeverExceeded lets many take and give at once.
func TestPermitsAreNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "permits")
		wants := rapid.SliceOfN(rapid.IntRange(1, 100), 1, 20).Draw(t, "wants")
		p := NewPermits(size)
		var out atomic.Int64
		var takers sync.WaitGroup
		for _, want := range wants {
			takers.Go(func() {
				for left := want; left > 0; {
					n := p.Take(context.Background(), left)
					if now := out.Add(int64(n)); now > int64(size) || n < 1 {
						t.Errorf("%d permits out of %d, %d taken", now, size, n)
					}
					left -= n
					out.Add(int64(-n))
					p.Give(n)
				}
			})
		}
		takers.Wait()
		if p.free != size {
			t.Fatalf("%d of %d permits came back", p.free, size)
		}
	})
}
