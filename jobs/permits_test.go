package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
)

var one, other = models.OrganisationID{1}, models.OrganisationID{2}

func TestPermitsGoInWaves(t *testing.T) {
	p := NewPermits(64) // waves of 8
	if n := p.Take(t.Context(), p.Turn(one), 60); n != 60 {
		t.Fatalf("took %d of 60", n)
	}
	got := make(chan int, 2)
	go func() { got <- p.Take(t.Context(), p.Turn(one), 100) }()
	waitForWaiters(p, 1)
	p.Give(one, 3)
	select {
	case n := <-got:
		t.Fatalf("a wave of %d, with 7 free", n)
	default:
	}
	p.Give(one, 1)
	if n := <-got; n != 8 {
		t.Errorf("a wave of %d, want 8", n)
	}
	p.Give(one, 2)
	if n := p.Take(t.Context(), p.Turn(one), 1); n != 1 { // who wants less than a wave need not wait for one
		t.Errorf("took %d of 1", n)
	}
}

func TestPermitsOfWhoLeftGoToTheNext(t *testing.T) {
	p := NewPermits(1)
	p.Take(t.Context(), p.Turn(one), 1)
	ctx, leave := context.WithCancel(t.Context())
	left, next := make(chan int), make(chan int)
	go func() { left <- p.Take(ctx, p.Turn(one), 1) }()
	waitForWaiters(p, 1)
	go func() { next <- p.Take(t.Context(), p.Turn(one), 1) }()
	waitForWaiters(p, 2)
	leave()
	if n := <-left; n != 0 {
		t.Errorf("took %d after the context's end", n)
	}
	p.Give(one, 1)
	if n := <-next; n != 1 {
		t.Errorf("the next took %d", n)
	}
}

// TestPermitsGoToWhoHasTheFewest lets one organisation hold and want everything before another comes.
func TestPermitsGoToWhoHasTheFewest(t *testing.T) {
	p := NewPermits(64)
	p.Take(t.Context(), p.Turn(one), 64)
	got := make(chan models.OrganisationID)
	take := func(organisation models.OrganisationID, n int) {
		p.Take(t.Context(), p.Turn(organisation), n)
		got <- organisation
	}
	for i := range 12 {
		go take(one, 100)
		waitForWaiters(p, i+1)
	}
	go take(other, 10)
	waitForWaiters(p, 13)
	p.Give(one, 8)
	if first := <-got; first != other {
		t.Error("the first wave went to who has the most")
	}
	for range 12 {
		p.Give(one, 8)
		<-got
	}
}

// TestPermitsGoToPaymentsFirst lets a payment come after others who hold and want everything.
func TestPermitsGoToPaymentsFirst(t *testing.T) {
	p := NewPermits(64)
	p.Take(t.Context(), p.Turn(one), 64)
	got := make(chan Turn)
	take := func(turn Turn) {
		p.Take(t.Context(), turn, 8)
		got <- turn
	}
	others := p.Turn(other)
	go take(others)
	waitForWaiters(p, 1)
	p.calls.mu.Lock()
	p.calls.held[atOnce.organisation]++ // one payment more than the other organisation has under way
	p.calls.mu.Unlock()
	go take(atOnce)
	waitForWaiters(p, 2)
	for _, want := range []Turn{atOnce, others} {
		p.Give(one, 8)
		if turn := <-got; turn != want {
			t.Errorf("the wave went to %v, want %v", turn, want)
		}
	}
}

func waitForWaiters(p *Permits, n int) {
	for {
		p.calls.mu.Lock()
		waiting := p.calls.waiting.Len()
		p.calls.mu.Unlock()
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
		for i, want := range wants {
			organisation := []models.OrganisationID{one, other}[i%2]
			takers.Go(func() {
				for left := want; left > 0; {
					n := p.Take(context.Background(), p.Turn(organisation), left)
					if now := out.Add(int64(n)); now > int64(size) || n < 1 {
						t.Errorf("%d permits out of %d, %d taken", now, size, n)
					}
					left -= n
					out.Add(int64(-n))
					p.Give(organisation, n)
				}
			})
		}
		takers.Wait()
		if p.calls.free != size || len(p.calls.held) != 0 {
			t.Fatalf("%d of %d permits came back, %v are held", p.calls.free, size, p.calls.held)
		}
	})
}

// TestPermitsFinishWhatHasBegun lets a chunk that has begun ask again behind another's back.
func TestPermitsFinishWhatHasBegun(t *testing.T) {
	p := NewPermits(64)
	begun, later := p.Turn(one), p.Turn(one)
	p.Take(t.Context(), begun, 64)
	got := make(chan Turn)
	take := func(turn Turn) {
		p.Take(t.Context(), turn, 8)
		got <- turn
	}
	go take(later)
	waitForWaiters(p, 1)
	go take(begun)
	waitForWaiters(p, 2)
	for _, want := range []Turn{begun, later} {
		p.Give(one, 8)
		if turn := <-got; turn != want {
			t.Errorf("the wave went to %v, want %v", turn, want)
		}
	}
}
