package rail

import (
	"context"
	"errors"
	"time"

	"partnerbilling/models"
)

// Sandbox is a rail played in Postgres, for the sandbox environment: accounts are opened at sign-up and behave as
// chosen there. A call costs one statement for all its new keys, and waits for slow accounts without holding anything.
type Sandbox struct {
	Unlimited
	store *models.Store
}

var _ Rail = (*Sandbox)(nil)

// NewSandbox makes the rail whose state is in the store's database.
func NewSandbox(store *models.Store) *Sandbox { return &Sandbox{store: store} }

// Debit implements Rail.
func (s *Sandbox) Debit(ctx context.Context, debits []Debit, report func(i int, r Result)) {
	orders := make([]models.SandboxOrder, 0, len(debits))
	at := make([]int, 0, len(debits)) // the index in debits of each order
	for i, d := range debits {
		if err := d.Validate(); err != nil {
			report(i, Result{Status: Invalid, Detail: err.Error()})
			continue
		}
		orders = append(orders, models.SandboxOrder{Key: d.Key, SandboxParticulars: models.SandboxParticulars(d.Particulars())})
		at = append(at, i)
	}
	if len(orders) == 0 {
		return
	}
	if ctx.Err() != nil {
		reportAll(at, Result{Status: Unavailable, Detail: "the call ended before it began"}, report)
		return
	}
	answers, err := s.store.DebitSandbox(ctx, orders)
	silence := Result{Status: Unknown}
	if err != nil {
		silence = lostCall(err)
	}
	var slow []undecided
	for n, a := range answers {
		switch a.Status {
		case models.SandboxUndecided:
			slow = append(slow, undecided{at[n], orders[n].Key, a.DueIn})
		case "":
			report(at[n], silence)
		default:
			report(at[n], resultOf(a))
		}
	}
	s.await(ctx, slow, report)
}

// undecided is a debit that the sandbox has taken in and not decided yet.
type undecided struct {
	i     int // where it is to be reported
	key   string
	dueIn time.Duration
}

// await reports undecided debits as they are decided, or as Unknown when ctx ends.
func (s *Sandbox) await(ctx context.Context, open []undecided, report func(i int, r Result)) {
	for len(open) > 0 {
		next := open[0].dueIn
		for _, u := range open {
			next = min(next, u.dueIn)
		}
		timer := time.NewTimer(next + time.Millisecond) // due times are cut to milliseconds: never a moment too early
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		open = s.askAgain(ctx, open, report)
	}
}

// askAgain reports what is known of the debits by now and returns those that are still undecided.
func (s *Sandbox) askAgain(ctx context.Context, open []undecided, report func(i int, r Result)) []undecided {
	keys := make([]string, len(open))
	for n, u := range open {
		keys[n] = u.key
	}
	err := ctx.Err()
	var answers []models.SandboxAnswer
	if err == nil {
		answers, err = s.store.LookupSandbox(ctx, keys)
	}
	var still []undecided
	for n, u := range open {
		switch {
		case err != nil:
			report(u.i, Result{Status: Unknown, Detail: "not decided yet: " + err.Error()})
		case answers[n].Status == models.SandboxUndecided:
			u.dueIn = answers[n].DueIn
			still = append(still, u)
		default:
			report(u.i, resultOf(answers[n]))
		}
	}
	return still
}

// Lookup implements Rail.
func (s *Sandbox) Lookup(ctx context.Context, keys []string, report func(i int, r Result)) {
	s.about(ctx, keys, s.store.LookupSandbox, report)
}

// Cancel implements Rail.
func (s *Sandbox) Cancel(ctx context.Context, keys []string, report func(i int, r Result)) {
	s.about(ctx, keys, s.store.CancelSandbox, report)
}

// about asks one question about the keys that are valid.
func (s *Sandbox) about(ctx context.Context, keys []string,
	question func(context.Context, []string) ([]models.SandboxAnswer, error), report func(i int, r Result),
) {
	valid := make([]string, 0, len(keys))
	at := make([]int, 0, len(keys))
	for i, key := range keys {
		if err := ValidateKey(key); err != nil {
			report(i, Result{Status: Unknown, Detail: err.Error()})
			continue
		}
		valid, at = append(valid, key), append(at, i)
	}
	if len(valid) == 0 {
		return
	}
	answers, err := question(ctx, valid)
	if err != nil {
		reportAll(at, Result{Status: Unknown, Detail: err.Error()}, report)
		return
	}
	for n, a := range answers {
		r := resultOf(a)
		r.Held = Particulars(a.Held)
		report(at[n], r)
	}
}

func reportAll(at []int, r Result, report func(i int, r Result)) {
	for _, i := range at {
		report(i, r)
	}
}

// lostCall is the result of a debit call that failed as a whole.
func lostCall(err error) Result {
	if errors.Is(err, models.ErrSandboxUntouched) {
		return Result{Status: Unavailable, Detail: err.Error()}
	}
	return Result{Status: Unknown, Detail: err.Error()}
}

// resultOf is what an answer means, without the particulars that the key holds.
func resultOf(a models.SandboxAnswer) Result {
	switch a.Status {
	case models.SandboxSucceeded:
		return Result{Status: Succeeded}
	case models.SandboxRefused:
		return Result{Status: Refused, Reason: ParseReason(a.Reason)}
	case models.SandboxCancelled:
		return Result{Status: Cancelled}
	case models.SandboxConflict:
		return Result{Status: Conflict, Detail: "another debit holds the key"}
	case models.SandboxBankIsDown:
		return Result{Status: Unavailable, Detail: "the bank is down"}
	case models.SandboxUnseen:
		return Result{Status: NotFound}
	case models.SandboxLost:
		return Result{Status: Unknown, Detail: "the answer was lost"}
	case models.SandboxUndecided:
		return Result{Status: Unknown, Detail: "not decided yet"}
	default:
		return Result{Status: Unknown, Detail: "no answer"}
	}
}
