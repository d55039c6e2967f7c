package railtest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// Step is what one debit call meets.
type Step struct {
	kind   stepKind
	reason rail.Reason
}

type stepKind int

const (
	stepSucceed stepKind = iota
	stepRefuse
	stepUnavailable
	stepLoseAnswer
	stepLoseRequest
	stepHang
	stepInvalid
)

// The steps. Refuse makes one more.
var (
	// Succeed debits.
	Succeed = Step{kind: stepSucceed}
	// Unavailable debits nothing and says so.
	Unavailable = Step{kind: stepUnavailable}
	// LoseAnswer debits, and the caller learns nothing.
	LoseAnswer = Step{kind: stepLoseAnswer}
	// LoseRequest debits nothing, and the caller learns nothing.
	LoseRequest = Step{kind: stepLoseRequest}
	// Hang keeps the call until Release, and goes on with the next step of the script then. If the call's context ends
	// before, the caller learns nothing; the debit is still on its way and arrives with Release, unless the key has
	// been cancelled meanwhile.
	Hang = Step{kind: stepHang}
	// Invalid debits nothing, records nothing, and says that the debit is invalid. It strikes before the rail looks at the
	// key, so that it also meets calls of a key that has a final result.
	Invalid = Step{kind: stepInvalid}
)

// Refuse debits nothing, for ever.
func Refuse(why rail.Reason) Step { return Step{kind: stepRefuse, reason: why} }

// Calls counts the calls that a key was in.
type Calls struct{ Debits, Lookups, Cancels int }

// Scripted is a rail in memory, for tests of what uses a rail. It keeps the rules of the port, answers at once, does
// to each key what its script says, and remembers everything.
type Scripted struct {
	mu      sync.Mutex
	rest    Step
	scripts map[string][]Step    // by key or agreement, what is left of a key's
	started map[[2]string][]Step // by key and agreement, what is left of an agreement's for that key
	records map[string]scriptedRecord
	hanging map[string][]*hanging
	calls   map[string]Calls
	moved   []rail.Debit
	down    bool
	turns   scriptedTurns
	changed chan struct{} // closed with every call that is recorded, and every other change that tests wait for
}

type scriptedRecord struct {
	debit  rail.Debit // zero if cancelled before any debit arrived
	result rail.Result
}

// hanging is a debit that waits for Release.
type hanging struct {
	debit  rail.Debit
	answer chan rail.Result // holds one
}

var _ rail.Rail = (*Scripted)(nil)

// NewScripted makes a rail that lets every debit succeed until told otherwise.
func NewScripted() *Scripted {
	return &Scripted{
		rest: Succeed, scripts: make(map[string][]Step), started: make(map[[2]string][]Step),
		records: make(map[string]scriptedRecord), hanging: make(map[string][]*hanging), calls: make(map[string]Calls),
		turns: scriptedTurns{admitted: make(map[models.OrganisationID]int)}, changed: make(chan struct{}),
	}
}

// Script says what the next debit calls meet, one step each: those of a key, or those of each key of an agreement
// that has not been debited so far. Calls of a key that has a final result are answered with that and use up no step but
// Invalid.
func (s *Scripted) Script(keyOrAgreement string, steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[keyOrAgreement] = steps
}

// Otherwise says what debit calls meet that have no script, or have used it up; Succeed at first.
func (s *Scripted) Otherwise(step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = step
}

// SetDown makes the whole rail unreachable, or reachable again.
func (s *Scripted) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Release lets the debits that hang under a key arrive, whether or not their callers still wait.
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

// Calls are the calls that a key was in so far, those included that never reached the rail.
func (s *Scripted) Calls(key string) Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

// AwaitCalls waits until a key was in at least that many calls of each sort.
func (s *Scripted) AwaitCalls(t TB, key string, atLeast Calls) {
	t.Helper()
	s.await(t, fmt.Sprintf("key %q to be in %+v", key, atLeast), func() bool {
		c := s.calls[key]
		return c.Debits >= atLeast.Debits && c.Lookups >= atLeast.Lookups && c.Cancels >= atLeast.Cancels
	})
}

func (s *Scripted) await(t TB, what string, come func() bool) {
	t.Helper()
	for {
		s.mu.Lock()
		is, changed := come(), s.changed
		s.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("railtest: still waiting for %s", what)
		}
	}
}

// wake lets every waiting call of await check again.
func (s *Scripted) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Moved are the debits whose money was taken, in order. There is never more than one for a key; two keys for one
// purpose are what a test must look for.
func (s *Scripted) Moved() []rail.Debit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.moved)
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
		report(i, s.about(ctx, key, func(c *Calls) { c.Lookups++ }, func() rail.Result {
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
		report(i, s.about(ctx, key, func(c *Calls) { c.Cancels++ }, func() rail.Result {
			if _, seen := s.records[key]; !seen {
				s.records[key] = scriptedRecord{result: rail.Result{Status: rail.Cancelled}}
			}
			return s.records[key].held()
		}))
	}
}

func (s *Scripted) about(ctx context.Context, key string, count func(*Calls), answer func() rail.Result) rail.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(key, count)
	if s.down || ctx.Err() != nil || rail.ValidateKey(key) != nil {
		return rail.Result{Status: rail.Unknown, Detail: "no answer"}
	}
	return answer()
}

// count records a call and wakes the waiting tests.
func (s *Scripted) count(key string, add func(*Calls)) {
	c := s.calls[key]
	add(&c)
	s.calls[key] = c
	s.useTurn()
	s.wake()
}

// receive takes in a debit call. If it hangs, the result comes through answer.
func (s *Scripted) receive(ctx context.Context, d rail.Debit, answer chan rail.Result) (r rail.Result, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.count(d.Key, func(c *Calls) { c.Debits++ }) // last, so that a test that waits for the call finds it done
	if s.down || ctx.Err() != nil {
		return rail.Result{Status: rail.Unavailable, Detail: "nothing was sent"}, false
	}
	if err := d.Validate(); err != nil {
		return rail.Result{Status: rail.Invalid, Detail: err.Error()}, false
	}
	return s.arrive(d, answer)
}

// arrive is a debit reaching the rail.
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

// nextStep uses up the next step of the debit's script.
func (s *Scripted) nextStep(d rail.Debit) Step {
	steps, set := s.script(d)
	step, left := s.first(steps)
	set(left)
	return step
}

func (s *Scripted) peekStep(d rail.Debit) Step {
	steps, _ := s.script(d)
	step, _ := s.first(steps)
	return step
}

// script returns what is left of the debit's script, and a function that replaces it.
func (s *Scripted) script(d rail.Debit) (left []Step, set func([]Step)) {
	if steps, own := s.scripts[d.Key]; own {
		return steps, func(left []Step) { s.scripts[d.Key] = left }
	}
	id := [2]string{d.Key, d.AgreementID}
	steps, begun := s.started[id]
	if !begun {
		steps = s.scripts[d.AgreementID]
	}
	return steps, func(left []Step) { s.started[id] = left }
}

func (s *Scripted) first(steps []Step) (step Step, left []Step) {
	if len(steps) == 0 {
		return s.rest, nil
	}
	return steps[0], steps[1:]
}

func (s *Scripted) record(d rail.Debit, r rail.Result) rail.Result {
	s.records[d.Key] = scriptedRecord{d, r}
	if r.Status == rail.Succeeded {
		s.moved = append(s.moved, d)
	}
	return r
}

// answerTo is the answer to a later debit under the key.
func (rec scriptedRecord) answerTo(d rail.Debit) rail.Result {
	if rec.debit.Particulars().ConflictsWith(d) {
		return rail.Result{Status: rail.Conflict, Detail: "another debit holds the key"}
	}
	return rec.result
}

// held is the result with what the key holds.
func (rec scriptedRecord) held() rail.Result {
	r := rec.result
	r.Held = rec.debit.Particulars()
	return r
}

// Amounts sums what was moved, by key.
func (s *Scripted) Amounts() map[string]models.Amount {
	sums := make(map[string]models.Amount)
	for _, d := range s.Moved() {
		sums[d.Key] += d.Amount
	}
	return sums
}
