package jobs

import (
	"cmp"
	"container/list"
	"context"
	"sync"

	"partnerbilling/models"
)

// semaphore is a weighted semaphore that is fair between organisations. A caller that wants at
// least a wave of permits gets at least a wave, so that calls and claims stay large. It is safe for
// concurrent use.
type semaphore struct {
	mu      sync.Mutex
	free    int // number of free permits
	wave    int // minimum number of permits granted to a caller that wants at least as many
	held    map[models.OrganisationID]int
	waiting *list.List // of *waiter
}

// waiter is a call of acquire that waits for permits.
type waiter struct {
	ticket  Ticket
	n       int      // the number of permits that the caller wants
	granted chan int // receives the number of granted permits; buffered
}

// newSemaphore returns a semaphore of n permits, with waves of at least n/waves permits.
func newSemaphore(n, waves int) *semaphore {
	return &semaphore{free: n, wave: max(1, n/waves), held: map[models.OrganisationID]int{}, waiting: list.New()}
}

// acquire waits until a wave of permits is free, or n if that is less. It takes all that are free,
// up to n, and returns their number: 0 if the context ends first.
func (s *semaphore) acquire(ctx context.Context, ticket Ticket, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	s.mu.Lock()
	if s.waiting.Len() == 0 && s.suffices(n) {
		taken := s.grant(ticket.organisation, n)
		s.mu.Unlock()
		return taken
	}
	w := &waiter{ticket: ticket, n: n, granted: make(chan int, 1)}
	element := s.waiting.PushBack(w)
	s.serve() // the new waiter may be next, and want less than a wave
	s.mu.Unlock()
	select {
	case taken := <-w.granted:
		return taken
	case <-ctx.Done():
		s.leave(element, w)
		return 0
	}
}

// leave removes a waiter that gives up. It releases permits that were granted to it meanwhile.
func (s *semaphore) leave(element *list.Element, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case taken := <-w.granted:
		s.putBack(w.ticket.organisation, taken)
	default:
		s.waiting.Remove(element)
	}
	s.serve()
}

// release returns n permits of an organisation.
func (s *semaphore) release(organisation models.OrganisationID, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putBack(organisation, n)
	s.serve()
}

// putBack adds released permits to the free ones. The caller holds mu.
func (s *semaphore) putBack(organisation models.OrganisationID, n int) {
	s.free += n
	if s.held[organisation] -= n; s.held[organisation] == 0 {
		delete(s.held, organisation)
	}
}

// serve grants permits to the next waiter, and so on, while enough are free. If the next waiter
// needs more, no other waiter gets any. The caller holds mu.
func (s *semaphore) serve() {
	for element := s.next(); element != nil; element = s.next() {
		w := element.Value.(*waiter) //nolint:forcetypeassert // the list holds nothing else
		if !s.suffices(w.n) {
			return
		}
		s.waiting.Remove(element)
		w.granted <- s.grant(w.ticket.organisation, w.n)
	}
}

// next picks checkout first, then the organisation with the fewest permits, then the oldest ticket.
// It returns nil if no call waits. The caller holds mu.
func (s *semaphore) next() *list.Element {
	var best *list.Element
	var fewest int
	var oldest uint64
	for element := s.waiting.Front(); element != nil; element = element.Next() {
		ticket := element.Value.(*waiter).ticket //nolint:forcetypeassert // the list holds nothing else
		held := s.held[ticket.organisation]
		if ticket == checkoutTicket {
			held = -1
		}
		if best == nil || cmp.Or(cmp.Compare(held, fewest), cmp.Compare(ticket.number, oldest)) < 0 {
			best, fewest, oldest = element, held, ticket.number
		}
	}
	return best
}

// suffices reports whether enough permits are free for a caller that wants n. The caller holds mu.
func (s *semaphore) suffices(n int) bool { return s.free >= min(n, s.wave) }

// grant takes the free permits, up to n, and returns their number. The caller holds mu.
func (s *semaphore) grant(organisation models.OrganisationID, n int) int {
	n = min(n, s.free)
	s.free -= n
	s.held[organisation] += n
	return n
}
