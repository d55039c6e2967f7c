package railtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// Calls counts the calls of each kind with a key.
type Calls struct{ Debits, Lookups, Cancels int }

// Scripted is a rail in memory, for tests of code that uses a rail. It keeps the rules of
// rail.Rail, answers at once, follows a script for each key, and records all calls.
type Scripted struct {
	mu       sync.Mutex        // guards the fields below
	fallback Step              // of debits without a script
	scripts  map[string][]Step // remaining steps, by key or agreement
	// started has each key's remaining steps of its agreement's script, by key and agreement.
	started    map[[2]string][]Step
	records    map[string]scriptedRecord // by key
	hanging    map[string][]*hanging     // by key
	calls      map[string]Calls          // by key
	taken      []takenDebit              // in the order of the debits
	now        func() models.Millis      // the clock of the list
	down       bool                      // unreachable
	admissions admissions
	changed    chan struct{} // closed and replaced at every change that await may wait for
}

// scriptedRecord is the final result under a key.
type scriptedRecord struct {
	debit  rail.Debit // zero if the key was cancelled before any debit arrived
	result rail.Result
}

// takenDebit is a debit that took money.
type takenDebit struct {
	debit rail.Debit
	at    models.Millis
}

// hanging is a debit held until Release.
type hanging struct {
	debit  rail.Debit
	answer chan rail.Result // buffered
}

var _ rail.Rail = (*Scripted)(nil)

// NewScripted returns a rail on which every debit succeeds by default.
func NewScripted() *Scripted {
	return &Scripted{
		fallback: Succeed, scripts: make(map[string][]Step), started: make(map[[2]string][]Step),
		records: make(map[string]scriptedRecord), hanging: make(map[string][]*hanging), calls: make(map[string]Calls),
		admissions: admissions{total: make(map[models.OrganisationID]int)}, changed: make(chan struct{}),
		now: func() models.Millis { return models.MillisOf(time.Now()) },
	}
}

// Script sets the steps of the next debit calls with a key or an agreement. The script of an
// agreement starts anew for each of its keys, but does not affect keys that have used a step
// before. The script of a key precedes that of its agreement. A debit with a key that has a final
// result gets that result. It uses up no step, unless the next one is Invalid.
func (s *Scripted) Script(keyOrAgreement string, steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[keyOrAgreement] = steps
}

// SetDefault sets the step of debit calls without a script, or after the end of their script.
// NewScripted sets Succeed.
func (s *Scripted) SetDefault(step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fallback = step
}

// SetClock replaces the clock of the list, which is time.Now at first.
func (s *Scripted) SetClock(now func() models.Millis) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Forget removes a key, as if the rail had never seen it. The counts of calls and the script stay.
func (s *Scripted) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
	s.taken = slices.DeleteFunc(s.taken, func(t takenDebit) bool { return t.debit.Key == key })
}

// SetDown makes the rail unreachable, or reachable again. An unreachable rail answers debits with
// Unavailable, look-ups and cancellations with Unknown, and List with an error.
func (s *Scripted) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Release lets the debits of a key that Hang holds arrive, whether or not their callers still wait.
func (s *Scripted) Release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	released := s.hanging[key]
	delete(s.hanging, key)
	for _, h := range released {
		if r, hangs := s.arrive(h.debit, h.answer); !hangs {
			h.answer <- r
		}
	}
}

// Calls returns the number of calls with a key so far, including calls that never reached the rail.
func (s *Scripted) Calls(key string) Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

// AwaitCalls waits until the numbers of calls with a key have reached atLeast. It fails the test
// after a minute.
func (s *Scripted) AwaitCalls(t TB, key string, atLeast Calls) {
	t.Helper()
	s.await(t, fmt.Sprintf("%+v with key %q", atLeast, key), func() (bool, string) {
		c := s.calls[key]
		done := c.Debits >= atLeast.Debits && c.Lookups >= atLeast.Lookups && c.Cancels >= atLeast.Cancels
		return done, fmt.Sprintf("%+v", c)
	})
}

// awaitTimeout bounds each wait of AwaitCalls and AwaitAdmitCallers.
const awaitTimeout = time.Minute

// await waits until check returns done. check runs under mu, and also returns the current state for
// the message of a failure.
func (s *Scripted) await(t TB, wanted string, check func() (done bool, state string)) {
	t.Helper()
	timeout := time.NewTimer(awaitTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		done, state := check()
		changed := s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("railtest: the test ended while it waited for %s; got %s", wanted, state)
		case <-timeout.C:
			t.Fatalf("railtest: waited for %s; got %s after %s", wanted, state, awaitTimeout)
		}
	}
}

// notify makes every waiting await check again. The caller holds mu.
func (s *Scripted) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Moved returns the debits that took money, in order. There is never more than one for a key. A
// test must check itself that no two keys served the same purpose.
func (s *Scripted) Moved() []rail.Debit {
	s.mu.Lock()
	defer s.mu.Unlock()
	debits := make([]rail.Debit, len(s.taken))
	for i, t := range s.taken {
		debits[i] = t.debit
	}
	return debits
}

// Debit implements rail.Rail.
func (s *Scripted) Debit(ctx context.Context, debits []rail.Debit, report func(i int, r rail.Result)) {
	var wg sync.WaitGroup
	for i, d := range debits {
		answer := make(chan rail.Result, 1)
		r, hangs := s.receive(ctx, d, answer)
		if !hangs {
			report(i, r)
			continue
		}
		wg.Go(func() {
			select {
			case r := <-answer:
				report(i, r)
			case <-ctx.Done():
				report(i, rail.Result{Status: rail.Unknown, Detail: "the call ended"})
			}
		})
	}
	wg.Wait()
}

// Lookup implements rail.Rail.
func (s *Scripted) Lookup(ctx context.Context, keys []string, report func(i int, r rail.Result)) {
	for i, key := range keys {
		report(i, s.byKey(ctx, key, func(c *Calls) { c.Lookups++ }, func() rail.Result {
			if rec, seen := s.records[key]; seen {
				return rec.held()
			}
			return rail.Result{Status: rail.NotFound}
		}))
	}
}

// Cancel implements rail.Rail.
func (s *Scripted) Cancel(ctx context.Context, keys []string, report func(i int, r rail.Result)) {
	for i, key := range keys {
		report(i, s.byKey(ctx, key, func(c *Calls) { c.Cancels++ }, func() rail.Result {
			if _, seen := s.records[key]; !seen {
				s.records[key] = scriptedRecord{result: rail.Result{Status: rail.Cancelled}}
			}
			return s.records[key].held()
		}))
	}
}

// List implements rail.Rail. The list is complete up to, but not including, the current
// millisecond.
func (s *Scripted) List(ctx context.Context, q rail.ListQuery) (rail.ListPage, error) {
	if err := q.Validate(); err != nil {
		return rail.ListPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useAdmission()
	if s.down || ctx.Err() != nil {
		return rail.ListPage{}, errors.New("railtest: no answer")
	}
	page := rail.ListPage{CompleteTo: s.now()}
	for _, t := range s.taken {
		d := rail.ListedDebit{Key: t.debit.Key, Particulars: t.debit.Particulars(), DebitedAt: t.at}
		if q.Selects(d) && d.DebitedAt < page.CompleteTo {
			page.Debits = append(page.Debits, d)
		}
	}
	slices.SortFunc(page.Debits, func(a, b rail.ListedDebit) int {
		return cmp.Or(cmp.Compare(a.DebitedAt, b.DebitedAt), cmp.Compare(a.Key, b.Key))
	})
	if len(page.Debits) > q.Limit {
		page.Debits, page.More = page.Debits[:q.Limit], true
	}
	return page, nil
}

// byKey counts a call with a key and returns its answer: Unknown if the rail is down, the call has
// ended or the key is invalid. answer runs under mu.
func (s *Scripted) byKey(ctx context.Context, key string, count func(*Calls), answer func() rail.Result) rail.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(key, count)
	if s.down || ctx.Err() != nil || rail.ValidateKey(key) != nil {
		return rail.Result{Status: rail.Unknown, Detail: "no answer"}
	}
	return answer()
}

// count counts a call, uses up its admission and notifies the waiting tests. The caller holds mu.
func (s *Scripted) count(key string, add func(*Calls)) {
	c := s.calls[key]
	add(&c)
	s.calls[key] = c
	s.useAdmission()
	s.notify()
}

// receive handles a debit call, whether or not it reaches the rail. If the debit hangs, its result
// comes over answer.
func (s *Scripted) receive(ctx context.Context, d rail.Debit, answer chan rail.Result) (r rail.Result, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The call is counted last, so that AwaitCalls returns only after the effect of the call.
	defer s.count(d.Key, func(c *Calls) { c.Debits++ })
	if s.down || ctx.Err() != nil {
		return rail.Result{Status: rail.Unavailable, Detail: "nothing was sent"}, false
	}
	if err := d.Validate(); err != nil {
		return rail.Result{Status: rail.Invalid, Detail: err.Error()}, false
	}
	return s.arrive(d, answer)
}

// arrive handles a debit that reaches the rail. If the debit hangs, its result comes over answer.
// The caller holds mu.
func (s *Scripted) arrive(d rail.Debit, answer chan rail.Result) (r rail.Result, hangs bool) {
	rec, seen := s.records[d.Key]
	if seen && s.peekStep(d).kind != stepInvalid {
		return rec.answerTo(d), false
	}
	step := s.nextStep(d)
	switch step.kind {
	case stepInvalid:
		return rail.Result{Status: rail.Invalid, Detail: "as scripted"}, false
	case stepHang:
		s.hanging[d.Key] = append(s.hanging[d.Key], &hanging{d, answer})
		return rail.Result{}, true
	case stepRefuse:
		return s.record(d, rail.Result{Status: rail.Refused, Reason: step.reason}), false
	case stepUnavailable:
		return rail.Result{Status: rail.Unavailable, Detail: "as scripted"}, false
	case stepLoseAnswer:
		s.record(d, rail.Result{Status: rail.Succeeded})
		return rail.Result{Status: rail.Unknown, Detail: "answer lost as scripted"}, false
	case stepLoseRequest:
		return rail.Result{Status: rail.Unknown, Detail: "request lost as scripted"}, false
	default:
		return s.record(d, rail.Result{Status: rail.Succeeded}), false
	}
}

// record records the final result of a debit and returns it. The caller holds mu.
func (s *Scripted) record(d rail.Debit, r rail.Result) rail.Result {
	s.records[d.Key] = scriptedRecord{d, r}
	if r.Status == rail.Succeeded {
		s.taken = append(s.taken, takenDebit{d, s.now()})
	}
	return r
}

// answerTo returns the answer to a later debit under the key.
func (rec scriptedRecord) answerTo(d rail.Debit) rail.Result {
	if rec.debit.Particulars().ConflictsWith(d) {
		return rail.Result{Status: rail.Conflict, Detail: "another debit holds the key"}
	}
	return rec.result
}

// held returns the record as Lookup and Cancel report it, with the particulars of the key.
func (rec scriptedRecord) held() rail.Result {
	r := rec.result
	r.Held = rec.debit.Particulars()
	return r
}

// Amounts returns the amounts of the debits that took money, by key.
func (s *Scripted) Amounts() map[string]models.Amount {
	sums := make(map[string]models.Amount)
	for _, d := range s.Moved() {
		sums[d.Key] += d.Amount
	}
	return sums
}
