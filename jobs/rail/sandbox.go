package rail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"partnerbilling/models"
)

// Sandbox is a rail simulated in Postgres, for the sandbox environment. A sign-up opens an account
// and chooses its behaviour. Each call handles all its keys together in a few statements. It holds
// no database transaction while it waits for slow accounts.
type Sandbox struct {
	Unlimited
	store *models.Store
}

var _ Rail = (*Sandbox)(nil)

// NewSandbox returns the rail whose state is in the store's database.
func NewSandbox(store *models.Store) *Sandbox { return &Sandbox{store: store} }

// Debit implements Rail.
func (s *Sandbox) Debit(ctx context.Context, debits []Debit, report func(i int, r Result)) {
	orders := make([]models.SandboxOrder, 0, len(debits))
	indexes := make([]int, 0, len(debits)) // of each order in debits
	for i, d := range debits {
		if err := d.Validate(); err != nil {
			report(i, Result{Status: Invalid, Detail: err.Error()})
			continue
		}
		orders = append(orders, models.SandboxOrder{Key: d.Key,
			SandboxParticulars: models.SandboxParticulars(d.Particulars())})
		indexes = append(indexes, i)
	}
	if len(orders) == 0 {
		return
	}
	if ctx.Err() != nil {
		reportAll(indexes, Result{Status: Unavailable, Detail: "the call ended before it began"}, report)
		return
	}
	answers, err := s.store.DebitSandbox(ctx, orders)
	noAnswer := Result{Status: Unknown}
	if err != nil {
		noAnswer = failedCall(err)
	}
	var slow []undecided
	for n, a := range answers {
		switch a.Status {
		case models.SandboxUndecided:
			slow = append(slow, undecided{indexes[n], orders[n].Key, a.DueIn})
		case "":
			report(indexes[n], noAnswer)
		default:
			report(indexes[n], resultOf(a))
		}
	}
	s.await(ctx, slow, report)
}

// undecided is a debit that the sandbox has accepted but not decided yet.
type undecided struct {
	i     int // the index to report
	key   string
	dueIn time.Duration
}

// await reports each undecided debit as soon as it is decided. When ctx ends, await reports the
// rest as Unknown.
func (s *Sandbox) await(ctx context.Context, open []undecided, report func(i int, r Result)) {
	for len(open) > 0 {
		next := open[0].dueIn
		for _, u := range open {
			next = min(next, u.dueIn)
		}
		timer := time.NewTimer(next + time.Millisecond) // due times are truncated to milliseconds
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		open = s.reportDecided(ctx, open, report)
	}
}

// reportDecided reports the debits that are decided by now, and returns the others. If the look-up
// fails, it reports all as Unknown.
func (s *Sandbox) reportDecided(ctx context.Context, open []undecided, report func(i int, r Result)) []undecided {
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
	s.byKey(ctx, keys, s.store.LookupSandbox, report)
}

// Cancel implements Rail.
func (s *Sandbox) Cancel(ctx context.Context, keys []string, report func(i int, r Result)) {
	s.byKey(ctx, keys, s.store.CancelSandbox, report)
}

// List implements Rail.
func (s *Sandbox) List(ctx context.Context, q ListQuery) (ListPage, error) {
	if err := q.Validate(); err != nil {
		return ListPage{}, err
	}
	list, err := s.store.ListSandbox(ctx, models.SandboxListQuery(q))
	if err != nil {
		return ListPage{}, fmt.Errorf("rail: list: %w", err)
	}
	page := ListPage{
		Debits: make([]ListedDebit, len(list.Debits)), More: list.More,
		CompleteFrom: list.CompleteFrom, CompleteTo: list.CompleteTo,
	}
	for i, d := range list.Debits {
		page.Debits[i] = ListedDebit{Key: d.Key, Particulars: Particulars(d.SandboxParticulars), DebitedAt: d.ChangedAt}
	}
	return page, nil
}

// byKey runs a query for the valid keys and reports its answers. It reports invalid keys as
// Unknown. If the query fails, it reports all keys as Unknown.
func (s *Sandbox) byKey(ctx context.Context, keys []string,
	query func(context.Context, []string) ([]models.SandboxAnswer, error), report func(i int, r Result),
) {
	valid := make([]string, 0, len(keys))
	indexes := make([]int, 0, len(keys)) // of each valid key in keys
	for i, key := range keys {
		if err := ValidateKey(key); err != nil {
			report(i, Result{Status: Unknown, Detail: err.Error()})
			continue
		}
		valid, indexes = append(valid, key), append(indexes, i)
	}
	if len(valid) == 0 {
		return
	}
	answers, err := query(ctx, valid)
	if err != nil {
		reportAll(indexes, Result{Status: Unknown, Detail: err.Error()}, report)
		return
	}
	for n, a := range answers {
		r := resultOf(a)
		r.Held = Particulars(a.Held)
		report(indexes[n], r)
	}
}

func reportAll(indexes []int, r Result, report func(i int, r Result)) {
	for _, i := range indexes {
		report(i, r)
	}
}

// failedCall returns the result of the debits that a failed call left without an answer:
// Unavailable if nothing was debited for them, else Unknown.
func failedCall(err error) Result {
	if errors.Is(err, models.ErrSandboxUntouched) {
		return Result{Status: Unavailable, Detail: err.Error()}
	}
	return Result{Status: Unknown, Detail: err.Error()}
}

// resultOf returns the result of an answer, without the particulars.
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
