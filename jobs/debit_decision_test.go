package jobs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

var (
	attempt  = rowRun{phase: models.PhaseAttempt, certain: true, row: models.ClaimedRow{Account: linked}}
	inactive = rowRun{phase: models.PhaseAttempt, certain: true}
	doubt    = rowRun{phase: models.PhaseAttempt, certain: true, row: models.ClaimedRow{InDoubt: true, Account: linked}}
	gone     = rowRun{phase: models.PhaseAttempt, certain: true, row: models.ClaimedRow{InDoubt: true}}
	closing  = rowRun{phase: models.PhaseClose, certain: true, row: models.ClaimedRow{Account: linked}}
	late     = rowRun{phase: models.PhaseClose, certain: true, row: models.ClaimedRow{InDoubt: true, Account: linked}}
	confirm  = rowRun{phase: models.PhaseConfirm, certain: true, row: models.ClaimedRow{InDoubt: true, Settled: true}}
	// A batch that was submitted soon after a loss may have been submitted before.
	again         = rowRun{phase: models.PhaseAttempt, row: models.ClaimedRow{Account: linked}}
	againInactive = rowRun{phase: models.PhaseAttempt}
	againClosing  = rowRun{phase: models.PhaseClose, row: models.ClaimedRow{Account: linked}}
	forgotten     = rowRun{phase: models.PhaseConfirm, certain: true, row: models.ClaimedRow{InDoubt: true, Settled: true, Forgotten: true}}

	linked = models.DebitAccount{Linked: true, AgreementID: "agreement"}
)

// asked is a call and the rail's answer to it.
type asked struct {
	call   railCall
	answer rail.Result
}

func TestDecisions(t *testing.T) {
	answer := func(s rail.Status) rail.Result { return rail.Result{Status: s} }
	refused := func(r rail.Reason) rail.Result { return rail.Result{Status: rail.Refused, Reason: r} }
	other := rail.Particulars{AgreementID: "another", Amount: 1, Currency: "AUD"}
	ours := rail.Particulars{AgreementID: "agreement", Amount: 5, Currency: "AUD"}
	unknowable := func(alert string) models.RowResult {
		return models.RowResult{Outcome: models.OutcomeUnconfirmed, Alert: alert}
	}
	cancelledDoubt := doubt
	cancelledDoubt.cancelled = true
	for name, tt := range map[string]struct {
		row  rowRun
		asks []asked // the calls that are expected, each with the answer it gets
		want models.RowResult
	}{
		"debited":                  {attempt, []asked{{callDebit, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"insufficient funds":       {attempt, []asked{{callDebit, refused(rail.InsufficientFunds)}}, models.RowResult{Outcome: models.OutcomeInsufficientFunds}},
		"account unavailable":      {attempt, []asked{{callDebit, refused(rail.AccountUnavailable)}}, models.RowResult{Outcome: models.OutcomeAccountUnavailable}},
		"limit exceeded":           {attempt, []asked{{callDebit, refused(rail.LimitExceeded)}}, models.RowResult{Outcome: models.OutcomeLimitExceeded}},
		"declined by the customer": {attempt, []asked{{callDebit, refused(rail.DeclinedByCustomer)}}, models.RowResult{Outcome: models.OutcomeDeclinedByCustomer}},
		"declined":                 {attempt, []asked{{callDebit, refused(rail.Declined)}}, models.RowResult{Outcome: models.OutcomeDeclined}},
		"not linked: no call":      {inactive, nil, models.RowResult{Outcome: models.OutcomeCustomerNotActive, Calls: -1}},
		"bank down":                {attempt, []asked{{callDebit, answer(rail.Unavailable)}}, models.RowResult{Release: true}},
		"answer lost, found": {attempt, []asked{{callDebit, answer(rail.Unknown)}, {callLookup, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"answer lost, may still arrive": {attempt, []asked{{callDebit, answer(rail.Unknown)}, {callLookup, answer(rail.NotFound)}}, models.RowResult{}},
		"answer lost, rail gone":        {attempt, []asked{{callDebit, answer(rail.Unknown)}, {callLookup, answer(rail.Unknown)}}, models.RowResult{}},
		"another debit has the key":     {attempt, []asked{{callDebit, answer(rail.Conflict)}}, unknowable(models.AlertRailConflict)},
		"in doubt, another debit has the key": {doubt, []asked{{callLookup, rail.Result{Status: rail.Succeeded, Held: other}}},
			unknowable(models.AlertRailConflict)},
		"in doubt, another debit was cancelled": {late, []asked{{callCancel, rail.Result{Status: rail.Cancelled, Held: other}}},
			unknowable(models.AlertRailConflict)},
		"never valid": {attempt, []asked{{callDebit, answer(rail.Invalid)}}, models.RowResult{Outcome: models.OutcomeDeclined}},
		"in doubt, never valid": {doubt, []asked{{callLookup, answer(rail.NotFound)}, {callDebit, answer(rail.Invalid)}, {callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeDeclined, Calls: 1}},
		"in doubt, no longer valid": {doubt, []asked{{callLookup, answer(rail.NotFound)}, {callDebit, answer(rail.Invalid)}, {callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded, Calls: 1}},
		"submitted again, debited":    {again, []asked{{callDebit, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"submitted again, not linked": {againInactive, []asked{{callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded, Calls: -1}},
		"submitted again, never valid": {again, []asked{{callDebit, answer(rail.Invalid)}, {callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeDeclined}},
		"submitted again, closing": {againClosing, []asked{{callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"forgotten, never seen":    {forgotten, []asked{{callCancel, answer(rail.Cancelled)}}, unknowable(models.AlertRailForgot)},
		"forgotten, but debited":   {forgotten, []asked{{callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"forgotten, but seen": {forgotten, []asked{{callCancel, rail.Result{Status: rail.Cancelled, Held: ours}}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"in doubt, debited":            {doubt, []asked{{callLookup, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"in doubt, no answer":          {doubt, []asked{{callLookup, answer(rail.Unknown)}}, models.RowResult{}},
		"in doubt, closed":             {doubt, []asked{{callLookup, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"in doubt, never seen":         {doubt, []asked{{callLookup, answer(rail.NotFound)}, {callDebit, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded, Calls: 1}},
		"in doubt, then down":          {doubt, []asked{{callLookup, answer(rail.NotFound)}, {callDebit, answer(rail.Unavailable)}}, models.RowResult{Calls: 1}},
		"in doubt, not linked":         {gone, []asked{{callLookup, answer(rail.NotFound)}, {callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeCustomerNotActive}},
		"in doubt, link revoked":       {gone, []asked{{callLookup, answer(rail.NotFound)}, {callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"in doubt, cancelled":          {cancelledDoubt, []asked{{callLookup, answer(rail.NotFound)}, {callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing: no call":             {closing, nil, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing, in doubt":            {late, []asked{{callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing, in doubt, too late":  {late, []asked{{callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"closing, in doubt, no answer": {late, []asked{{callCancel, answer(rail.Unknown)}}, models.RowResult{}},
		"confirmed not debited":        {confirm, []asked{{callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"confirmed debited":            {confirm, []asked{{callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			row := tt.row
			row.row.Amount, row.payee.currency = 5, "AUD"
			if row.row.Settled {
				row.row.Account = linked
			}
			call, got := row.first()
			for _, ask := range tt.asks {
				if call != ask.call {
					t.Fatalf("call %s, want %s", call, ask.call)
				}
				call, got = row.next(call, ask.answer)
			}
			if call != callNone {
				t.Fatalf("one more call: %s", call)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(models.RowResult{}, "RailsWord", "Called", "Confirming")); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got.Confirming != row.row.Settled || got.Called == (len(tt.asks) == 0 || tt.asks[len(tt.asks)-1].answer.Status == rail.Unknown) && len(tt.asks) < 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What is seen right before a debit decides whether it is made.
func TestDecisionsBeforeADebit(t *testing.T) {
	for name, tt := range map[string]struct {
		row  rowRun
		seen models.Eligibility
		call railCall
		want models.RowResult // of no call
	}{
		"as before":                {attempt, models.Eligibility{Phase: models.PhaseAttempt, Account: linked}, callDebit, models.RowResult{}},
		"revoked":                  {attempt, models.Eligibility{Phase: models.PhaseAttempt}, callNone, models.RowResult{Outcome: models.OutcomeCustomerNotActive, Calls: -1}},
		"revoked, in doubt":        {doubt, models.Eligibility{Phase: models.PhaseAttempt}, callCancel, models.RowResult{}},
		"cancelled":                {attempt, models.Eligibility{Phase: models.PhaseAttempt, Cancelled: true, Account: linked}, callNone, models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"cancelled, in doubt":      {doubt, models.Eligibility{Phase: models.PhaseAttempt, Cancelled: true, Account: linked}, callCancel, models.RowResult{}},
		"too late":                 {attempt, models.Eligibility{Phase: models.PhaseClose, Account: linked}, callNone, models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"too late, and revoked":    {attempt, models.Eligibility{Phase: models.PhaseClose}, callNone, models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"too late, in doubt":       {doubt, models.Eligibility{Phase: models.PhaseClose, Account: linked}, callCancel, models.RowResult{}},
		"after the deadline":       {doubt, models.Eligibility{Phase: models.PhaseConfirm, Account: linked}, callCancel, models.RowResult{}},
		"submitted again, revoked": {again, models.Eligibility{Phase: models.PhaseAttempt}, callCancel, models.RowResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			row := tt.row
			row.see(tt.seen)
			call, got := row.debitOrClose()
			if call != tt.call || got != tt.want || (call == callDebit) != tt.seen.MayDebit() {
				t.Errorf("%s with %+v, want %s with %+v", call, got, tt.call, tt.want)
			}
			if call == callCancel {
				call, got = row.next(call, rail.Result{Status: rail.Cancelled})
				want := models.OutcomeTimedOut
				if tt.seen.Phase == models.PhaseAttempt && !tt.seen.Cancelled {
					want = models.OutcomeCustomerNotActive
				}
				if calls := row.calls(); call != callNone || got.Outcome != want || (calls == -1) == row.row.InDoubt {
					t.Errorf("closed by the rail: %s with %+v, want %s", call, got, want)
				}
			}
		})
	}
}

// TestDecisionsNeverGoWrong lets the rail answer anything the port allows and holds the decisions against the few rules
// that may not be broken.
func TestDecisionsNeverGoWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rowRun{
			phase:     rapid.SampledFrom([]models.DebitPhase{models.PhaseAttempt, models.PhaseClose, models.PhaseConfirm}).Draw(t, "phase"),
			cancelled: rapid.Bool().Draw(t, "cancelled"),
			certain:   rapid.Bool().Draw(t, "certain"),
			row: models.ClaimedRow{
				InDoubt: rapid.Bool().Draw(t, "in doubt"),
				Account: models.DebitAccount{Linked: rapid.Bool().Draw(t, "linked")},
			},
		}
		maybeDebited := row.row.InDoubt || !row.certain // a debit may have been made whose fate is not known
		debits := 0
		call, result := row.first()
		for steps := 0; call != callNone; steps++ {
			if steps > 4 {
				t.Fatal("the row does not come to rest")
			}
			if call == callDebit {
				seen := models.Eligibility{ // right before it
					Phase:     rapid.SampledFrom([]models.DebitPhase{models.PhaseAttempt, models.PhaseAttempt, models.PhaseClose}).Draw(t, "phase now"),
					Cancelled: rapid.IntRange(0, 3).Draw(t, "cancelled now") == 0,
					Account:   models.DebitAccount{Linked: rapid.IntRange(0, 3).Draw(t, "linked now") > 0},
				}
				if !seen.MayDebit() {
					row.see(seen)
					if call, result = row.debitOrClose(); call == callDebit {
						t.Fatalf("a debit of %+v", row)
					}
					continue
				}
				if debits++; debits > 1 || !row.row.Account.Linked || row.cancelled || row.phase != models.PhaseAttempt {
					t.Fatalf("debit %d of %+v", debits, row)
				}
			}
			answers := map[railCall][]rail.Status{
				callDebit:  {rail.Succeeded, rail.Refused, rail.Cancelled, rail.Unavailable, rail.Unknown, rail.Conflict, rail.Invalid},
				callLookup: {rail.Succeeded, rail.Refused, rail.Cancelled, rail.NotFound, rail.Unknown},
				callCancel: {rail.Succeeded, rail.Refused, rail.Cancelled, rail.Unknown},
			}[call]
			status := rapid.SampledFrom(answers).Draw(t, call.String())
			maybeDebited = !status.Final() && (maybeDebited || call == callDebit && status == rail.Unknown)
			call, result = row.next(call, rail.Result{Status: status, Reason: rail.Declined})
			if (result.Outcome == models.OutcomeSucceeded) != (call == callNone && status == rail.Succeeded) {
				t.Fatalf("%s became %+v", status, result)
			}
		}
		if result.Outcome != "" && !result.RailsWord && (row.row.InDoubt || !row.certain || row.lookedUp) {
			t.Fatalf("closed without the rail's word: %+v of %+v", result, row)
		}
		if maybeDebited && row.certain && (result.Outcome != "" || result.Release) {
			t.Fatalf("a row in doubt became %+v", result)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: time.Second, 1: 1500 * time.Millisecond, 4: 5062500 * time.Microsecond, 15: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := retryAfter(n, 0.5); got != want {
			t.Errorf("retryAfter(%d) = %s, want %s", n, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n, random := rapid.IntRange(0, 1<<30).Draw(t, "n"), rapid.Float64Range(0, 0.999999).Draw(t, "random")
		middle, got := retryAfter(n, 0.5), retryAfter(n, random)
		if got < middle*8/10-1 || got > middle*12/10+1 {
			t.Fatalf("retryAfter(%d, %f) = %s, more than 20 %% from %s", n, random, got, middle)
		}
	})
}
