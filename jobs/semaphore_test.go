package jobs

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/models"
)

var one, other = models.OrganisationID{1}, models.OrganisationID{2}

func TestPermitsAreGrantedInWaves(t *testing.T) {
	p := NewPermits(64) // waves of 8
	if n := p.AcquireCalls(t.Context(), p.Ticket(one), 60); n != 60 {
		t.Fatalf("acquired %d of 60", n)
	}
	got := make(chan int, 2)
	go func() { got <- p.AcquireCalls(t.Context(), p.Ticket(one), 100) }()
	awaitWaiters(t, p, 1)
	p.ReleaseCalls(one, 3)
	select {
	case n := <-got:
		t.Fatalf("a wave of %d, with 7 free", n)
	default:
	}
	p.ReleaseCalls(one, 1)
	if n := <-got; n != 8 {
		t.Errorf("a wave of %d, want 8", n)
	}
	p.ReleaseCalls(one, 2)
	if n := p.AcquireCalls(t.Context(), p.Ticket(one), 1); n != 1 { // less than a wave needs no wave
		t.Errorf("acquired %d of 1", n)
	}
}

func TestPermitsSkipACallerThatGaveUp(t *testing.T) {
	p := NewPermits(1)
	p.AcquireCalls(t.Context(), p.Ticket(one), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, next := make(chan int), make(chan int)
	go func() { cancelled <- p.AcquireCalls(ctx, p.Ticket(one), 1) }()
	awaitWaiters(t, p, 1)
	go func() { next <- p.AcquireCalls(t.Context(), p.Ticket(one), 1) }()
	awaitWaiters(t, p, 2)
	cancel()
	if n := <-cancelled; n != 0 {
		t.Errorf("acquired %d after the context ended", n)
	}
	p.ReleaseCalls(one, 1)
	if n := <-next; n != 1 {
		t.Errorf("the next caller acquired %d", n)
	}
}

// An organisation that holds fewer permits comes before one that has waited for longer.
func TestPermitsGoToTheOrganisationWithTheFewest(t *testing.T) {
	p := NewPermits(64)
	p.AcquireCalls(t.Context(), p.Ticket(one), 64)
	got := make(chan models.OrganisationID)
	acquire := func(organisation models.OrganisationID, n int) {
		p.AcquireCalls(t.Context(), p.Ticket(organisation), n)
		got <- organisation
	}
	for i := range 12 {
		go acquire(one, 100)
		awaitWaiters(t, p, i+1)
	}
	go acquire(other, 10)
	awaitWaiters(t, p, 13)
	p.ReleaseCalls(one, 8)
	if first := <-got; first != other {
		t.Error("the first wave went to the organisation with the most permits")
	}
	for range 12 {
		p.ReleaseCalls(one, 8)
		<-got
	}
}

// A checkout payment comes before runs that have waited for longer.
func TestPermitsGoToCheckoutFirst(t *testing.T) {
	p := NewPermits(64)
	p.AcquireCalls(t.Context(), p.Ticket(one), 64)
	got := make(chan Ticket)
	acquire := func(ticket Ticket) {
		p.AcquireCalls(t.Context(), ticket, 8)
		got <- ticket
	}
	batch := p.Ticket(other)
	go acquire(batch)
	awaitWaiters(t, p, 1)
	p.calls.mu.Lock()
	p.calls.held[checkoutTicket.organisation]++ // checkout holds more permits than the other organisation
	p.calls.mu.Unlock()
	go acquire(checkoutTicket)
	awaitWaiters(t, p, 2)
	for _, want := range []Ticket{checkoutTicket, batch} {
		p.ReleaseCalls(one, 8)
		if ticket := <-got; ticket != want {
			t.Errorf("the wave went to %v, want %v", ticket, want)
		}
	}
}

// awaitWaiters waits until at least n callers wait for call permits.
func awaitWaiters(t *testing.T, p *Permits, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		p.calls.mu.Lock()
		waiting := p.calls.waiting.Len()
		p.calls.mu.Unlock()
		if waiting >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d callers wait for permits, want %d", waiting, n)
		}
	}
}

func TestPermitsAreNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "permits")
		wants := rapid.SliceOfN(rapid.IntRange(1, 100), 1, 20).Draw(t, "wants")
		p := NewPermits(size)
		var held atomic.Int64
		var callers sync.WaitGroup
		for i, want := range wants {
			organisation := []models.OrganisationID{one, other}[i%2]
			callers.Go(func() {
				for left := want; left > 0; {
					n := p.AcquireCalls(context.Background(), p.Ticket(organisation), left)
					if now := held.Add(int64(n)); now > int64(size) || n < 1 {
						t.Errorf("%d of %d permits are held, %d acquired", now, size, n)
					}
					left -= n
					held.Add(int64(-n))
					p.ReleaseCalls(organisation, n)
				}
			})
		}
		callers.Wait()
		if p.calls.free != size || len(p.calls.held) != 0 {
			t.Fatalf("%d of %d permits are free in the end, %v are held", p.calls.free, size, p.calls.held)
		}
	})
}

// Of the runs of one organisation, the oldest comes first, even if it waits for a shorter time.
func TestPermitsGoToTheOldestRun(t *testing.T) {
	p := NewPermits(64)
	older, newer := p.Ticket(one), p.Ticket(one)
	p.AcquireCalls(t.Context(), older, 64)
	got := make(chan Ticket)
	acquire := func(ticket Ticket) {
		p.AcquireCalls(t.Context(), ticket, 8)
		got <- ticket
	}
	go acquire(newer)
	awaitWaiters(t, p, 1)
	go acquire(older)
	awaitWaiters(t, p, 2)
	for _, want := range []Ticket{older, newer} {
		p.ReleaseCalls(one, 8)
		if ticket := <-got; ticket != want {
			t.Errorf("the wave went to %v, want %v", ticket, want)
		}
	}
}
