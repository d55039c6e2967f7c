package railtest

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// admissions counts the admissions of a Scripted rail, and limits them on request.
type admissions struct {
	limited bool
	allowed int                           // remaining, if limited
	max     int                           // per call of Admit; 0 means no maximum
	waiting int                           // calls that wait in Admit
	total   map[models.OrganisationID]int // admitted so far
	unused  int                           // admissions that no call has used so far
	missing int                           // items of calls that had no admission
}

// LimitAdmission makes Admit wait for the admissions that Allow adds. Without it, Admit admits at
// once.
func (s *Scripted) LimitAdmission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admissions.limited = true
}

// Allow lets Admit grant n more admissions while LimitAdmission applies.
func (s *Scripted) Allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admissions.allowed += n
	s.notify()
}

// SetMaxAdmitted sets the maximum number of admissions that one call of Admit grants. 0, the
// default, means no maximum.
func (s *Scripted) SetMaxAdmitted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admissions.max = n
}

// AwaitAdmitCallers waits until at least n callers wait in Admit. It fails the test after a minute.
func (s *Scripted) AwaitAdmitCallers(t TB, n int) {
	t.Helper()
	s.await(t, fmt.Sprintf("%d callers in Admit", n), func() (bool, string) {
		return s.admissions.waiting >= n, fmt.Sprint(s.admissions.waiting)
	})
}

// Admitted returns the number of admissions of an organisation so far.
func (s *Scripted) Admitted(organisation models.OrganisationID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admissions.total[organisation]
}

// Unadmitted returns the number of debits, keys and list requests so far that had no admission.
func (s *Scripted) Unadmitted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admissions.missing
}

// Admit implements rail.Rail.
func (s *Scripted) Admit(ctx context.Context, organisation models.OrganisationID, n int) int {
	if n < 1 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitAllowed(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if s.admissions.max > 0 {
		n = min(n, s.admissions.max)
	}
	if s.admissions.limited {
		n = min(n, s.admissions.allowed)
		s.admissions.allowed -= n
	}
	s.admissions.total[organisation] += n
	s.admissions.unused += n
	return n
}

// awaitAllowed waits until an admission is allowed or the context ends. The caller holds mu.
// awaitAllowed unlocks it while it waits.
func (s *Scripted) awaitAllowed(ctx context.Context) {
	s.admissions.waiting++
	s.notify()
	for s.admissions.limited && s.admissions.allowed == 0 && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	s.admissions.waiting--
}

// useAdmission uses up an admission for an item of a call, or counts the item as unadmitted. The
// caller holds mu.
func (s *Scripted) useAdmission() {
	if s.admissions.unused == 0 {
		s.admissions.missing++
		return
	}
	s.admissions.unused--
}
