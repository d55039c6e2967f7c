package railtest

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// scriptedTurns are the turns of a Scripted rail. They are counted whether or not they are limited.
type scriptedTurns struct {
	limited  bool
	left     int                           // to be admitted, if they are limited
	most     int                           // that are admitted at once; 0: any number
	waiting  int                           // callers of Admit
	admitted map[models.OrganisationID]int // in all
	unused   int                           // admitted, and not followed by a call so far
	missing  int                           // items of calls that nothing was admitted for
}

// Limit makes callers of Admit wait for turns that Allow gives.
func (s *Scripted) Limit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.limited = true
}

// Allow gives n turns more.
func (s *Scripted) Allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.left += n
	s.wake()
}

// AllowAtMost lets no caller of Admit have more than n turns at once.
func (s *Scripted) AllowAtMost(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.most = n
}

// AwaitWaiting waits until so many callers of Admit wait for turns, at least.
func (s *Scripted) AwaitWaiting(t TB, callers int) {
	t.Helper()
	s.await(t, fmt.Sprintf("%d callers to wait for turns", callers), func() bool { return s.turns.waiting >= callers })
}

// Admitted is how many turns an organisation has had so far.
func (s *Scripted) Admitted(organisation models.OrganisationID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns.admitted[organisation]
}

// WithoutTurn is how many items were in calls so far that had no turn.
func (s *Scripted) WithoutTurn() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns.missing
}

// Admit implements rail.Rail.
func (s *Scripted) Admit(ctx context.Context, organisation models.OrganisationID, n int) int {
	if n < 1 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitTurns(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if s.turns.most > 0 {
		n = min(n, s.turns.most)
	}
	if s.turns.limited {
		n = min(n, s.turns.left)
		s.turns.left -= n
	}
	s.turns.admitted[organisation] += n
	s.turns.unused += n
	return n
}

// awaitTurns lets go of the lock until there are turns or the context ends.
func (s *Scripted) awaitTurns(ctx context.Context) {
	s.turns.waiting++
	s.wake()
	for s.turns.limited && s.turns.left == 0 && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	s.turns.waiting--
}

// useTurn is an item of a call.
func (s *Scripted) useTurn() {
	if s.turns.unused == 0 {
		s.turns.missing++
		return
	}
	s.turns.unused--
}
