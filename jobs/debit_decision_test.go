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
	// A batch that was submitted soon after a database loss may have been submitted before it.
	again         = rowRun{phase: models.PhaseAttempt, row: models.ClaimedRow{Account: linked}}
	againInactive = rowRun{phase: models.PhaseAttempt}
	againClosing  = rowRun{phase: models.PhaseClose, row: models.ClaimedRow{Account: linked}}
	forgotten     = rowRun{
		phase: models.PhaseConfirm, certain: true,
		row: models.ClaimedRow{InDoubt: true, Settled: true, Forgotten: true},
	}

	linked     = models.DebitAccount{Linked: true, AgreementID: "agreement"}
	unreadable = models.DebitAccount{Linked: true, Unreadable: true}
)

func withAccount(r rowRun, account models.DebitAccount) rowRun {
	r.row.Account = account
	return r
}

// exchange is a call and the rail's answer.
type exchange struct {
	call   railCall
	answer rail.Result
}

func TestDecisions(t *testing.T) {
	answer := func(s rail.Status) rail.Result { return rail.Result{Status: s} }
	refused := func(r rail.Reason) rail.Result { return rail.Result{Status: rail.Refused, Reason: r} }
	other := rail.Particulars{AgreementID: "another", Amount: 1, Currency: "AUD"}
	ours := rail.Particulars{AgreementID: "agreement", Amount: 5, Currency: "AUD"}
	undecided := func(alert string) models.RowResult {
		return models.RowResult{Outcome: models.OutcomeUnconfirmed, Alert: alert}
	}
	cancelledDoubt := doubt
	cancelledDoubt.cancelled = true
	for name, tt := range map[string]struct {
		row       rowRun
		exchanges []exchange // expected
		want      models.RowResult
	}{
		"debited": {attempt, []exchange{{callDebit, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"insufficient funds": {attempt, []exchange{{callDebit, refused(rail.InsufficientFunds)}},
			models.RowResult{Outcome: models.OutcomeInsufficientFunds}},
		"account unavailable": {attempt, []exchange{{callDebit, refused(rail.AccountUnavailable)}},
			models.RowResult{Outcome: models.OutcomeAccountUnavailable}},
		"limit exceeded": {attempt, []exchange{{callDebit, refused(rail.LimitExceeded)}},
			models.RowResult{Outcome: models.OutcomeLimitExceeded}},
		"declined by the customer": {attempt, []exchange{{callDebit, refused(rail.DeclinedByCustomer)}},
			models.RowResult{Outcome: models.OutcomeDeclinedByCustomer}},
		"declined": {attempt, []exchange{{callDebit, refused(rail.Declined)}},
			models.RowResult{Outcome: models.OutcomeDeclined}},
		"not linked: no call": {inactive, nil,
			models.RowResult{Outcome: models.OutcomeCustomerNotActive, Calls: -1}},
		"unreadable: no call": {withAccount(attempt, unreadable), nil,
			models.RowResult{Release: true, Calls: -1, Alert: models.AlertPartyUnreadable}},
		"unreadable, not linked": {withAccount(attempt, models.DebitAccount{Unreadable: true}), nil,
			models.RowResult{Outcome: models.OutcomeCustomerNotActive, Calls: -1}},
		"unreadable, in doubt: no call": {withAccount(doubt, unreadable), nil,
			models.RowResult{Alert: models.AlertPartyUnreadable}},
		"unreadable, closing: no call": {withAccount(closing, unreadable), nil,
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"unreadable, closing, in doubt": {withAccount(late, unreadable), []exchange{{callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"unreadable, closing, debited": {withAccount(late, unreadable),
			[]exchange{{callCancel, rail.Result{Status: rail.Succeeded, Held: ours}}},
			models.RowResult{Alert: models.AlertPartyUnreadable}},
		"unreadable, closing, cancelled with another debit": {withAccount(late, unreadable),
			[]exchange{{callCancel, rail.Result{Status: rail.Cancelled, Held: rail.Particulars{AgreementID: "another",
				Amount: 5, Currency: "AUD"}}}}, models.RowResult{Alert: models.AlertPartyUnreadable}},
		"bank down": {attempt, []exchange{{callDebit, answer(rail.Unavailable)}},
			models.RowResult{Release: true}},
		"answer lost, found": {attempt, []exchange{{callDebit, answer(rail.Unknown)},
			{callLookup, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"answer lost, may still arrive": {attempt, []exchange{{callDebit, answer(rail.Unknown)},
			{callLookup, answer(rail.NotFound)}}, models.RowResult{}},
		"answer lost, rail gone": {attempt, []exchange{{callDebit, answer(rail.Unknown)},
			{callLookup, answer(rail.Unknown)}}, models.RowResult{}},
		"another debit has the key": {attempt, []exchange{{callDebit, answer(rail.Conflict)}},
			undecided(models.AlertRailConflict)},
		"in doubt, another debit has the key": {doubt,
			[]exchange{{callLookup, rail.Result{Status: rail.Succeeded, Held: other}}},
			undecided(models.AlertRailConflict)},
		"in doubt, another debit was cancelled": {late,
			[]exchange{{callCancel, rail.Result{Status: rail.Cancelled, Held: other}}},
			undecided(models.AlertRailConflict)},
		"never valid": {attempt, []exchange{{callDebit, answer(rail.Invalid)}},
			models.RowResult{Outcome: models.OutcomeDeclined}},
		"in doubt, never valid": {doubt, []exchange{{callLookup, answer(rail.NotFound)},
			{callDebit, answer(rail.Invalid)}, {callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeDeclined, Calls: 1}},
		"in doubt, no longer valid": {doubt, []exchange{{callLookup, answer(rail.NotFound)},
			{callDebit, answer(rail.Invalid)}, {callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded, Calls: 1}},
		"submitted again, debited": {again, []exchange{{callDebit, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"submitted again, not linked": {againInactive, []exchange{{callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded, Calls: -1}},
		"submitted again, never valid": {again, []exchange{{callDebit, answer(rail.Invalid)},
			{callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeDeclined}},
		"submitted again, closing": {againClosing, []exchange{{callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"forgotten, never seen": {forgotten, []exchange{{callCancel, answer(rail.Cancelled)}},
			undecided(models.AlertRailForgot)},
		"forgotten, but debited": {forgotten, []exchange{{callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"forgotten, but seen": {forgotten, []exchange{{callCancel, rail.Result{Status: rail.Cancelled, Held: ours}}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"in doubt, debited": {doubt, []exchange{{callLookup, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"in doubt, no answer": {doubt, []exchange{{callLookup, answer(rail.Unknown)}}, models.RowResult{}},
		"in doubt, closed": {doubt, []exchange{{callLookup, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"in doubt, never seen": {doubt, []exchange{{callLookup, answer(rail.NotFound)},
			{callDebit, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded, Calls: 1}},
		"in doubt, then down": {doubt, []exchange{{callLookup, answer(rail.NotFound)},
			{callDebit, answer(rail.Unavailable)}}, models.RowResult{Calls: 1}},
		"in doubt, not linked": {gone, []exchange{{callLookup, answer(rail.NotFound)},
			{callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeCustomerNotActive}},
		"in doubt, link revoked": {gone, []exchange{{callLookup, answer(rail.NotFound)},
			{callCancel, answer(rail.Succeeded)}}, models.RowResult{Outcome: models.OutcomeSucceeded}},
		"in doubt, cancelled": {cancelledDoubt, []exchange{{callLookup, answer(rail.NotFound)},
			{callCancel, answer(rail.Cancelled)}}, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing: no call": {closing, nil, models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing, in doubt": {late, []exchange{{callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"closing, in doubt, too late": {late, []exchange{{callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
		"closing, in doubt, no answer": {late, []exchange{{callCancel, answer(rail.Unknown)}}, models.RowResult{}},
		"confirmed not debited": {confirm, []exchange{{callCancel, answer(rail.Cancelled)}},
			models.RowResult{Outcome: models.OutcomeTimedOut}},
		"confirmed debited": {confirm, []exchange{{callCancel, answer(rail.Succeeded)}},
			models.RowResult{Outcome: models.OutcomeSucceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			row := tt.row
			row.row.Amount, row.payee.currency = 5, "AUD"
			if row.row.Settled {
				row.row.Account = linked
			}
			call, got := row.first()
			for _, e := range tt.exchanges {
				if call != e.call {
					t.Fatalf("call %s, want %s", call, e.call)
				}
				call, got = row.next(call, e.answer)
			}
			if call != callNone {
				t.Fatalf("unexpected call: %s", call)
			}
			ignored := cmpopts.IgnoreFields(models.RowResult{}, "FromRail", "Answered", "Confirming")
			if diff := cmp.Diff(tt.want, got, ignored); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			n := len(tt.exchanges)
			answered := n > 0 && tt.exchanges[n-1].answer.Status != rail.Unknown
			if got.Confirming != row.row.Settled || n < 2 && got.Answered != answered {
				t.Errorf("confirming or answered is wrong: %+v", got)
			}
		})
	}
}

// A recheck right before a debit decides whether the debit is made.
func TestDecisionsAfterARecheck(t *testing.T) {
	for name, tt := range map[string]struct {
		row  rowRun
		read models.Eligibility
		call railCall
		want models.RowResult // if there is no call
	}{
		"as before": {attempt, models.Eligibility{Phase: models.PhaseAttempt, Account: linked},
			callDebit, models.RowResult{}},
		"unreadable": {attempt, models.Eligibility{Phase: models.PhaseAttempt, Account: unreadable}, callNone,
			models.RowResult{Release: true, Calls: -1, Alert: models.AlertPartyUnreadable}},
		"revoked": {attempt, models.Eligibility{Phase: models.PhaseAttempt}, callNone,
			models.RowResult{Outcome: models.OutcomeCustomerNotActive, Calls: -1}},
		"revoked, in doubt": {doubt, models.Eligibility{Phase: models.PhaseAttempt}, callCancel,
			models.RowResult{}},
		"cancelled": {attempt, models.Eligibility{Phase: models.PhaseAttempt, Cancelled: true,
			Account: linked}, callNone, models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"cancelled, in doubt": {doubt, models.Eligibility{Phase: models.PhaseAttempt, Cancelled: true, Account: linked},
			callCancel, models.RowResult{}},
		"too late": {attempt, models.Eligibility{Phase: models.PhaseClose, Account: linked}, callNone,
			models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"too late, and revoked": {attempt, models.Eligibility{Phase: models.PhaseClose}, callNone,
			models.RowResult{Outcome: models.OutcomeTimedOut, Calls: -1}},
		"too late, in doubt": {doubt, models.Eligibility{Phase: models.PhaseClose, Account: linked}, callCancel,
			models.RowResult{}},
		"after the deadline": {doubt, models.Eligibility{Phase: models.PhaseConfirm, Account: linked}, callCancel,
			models.RowResult{}},
		"submitted again, revoked": {again, models.Eligibility{Phase: models.PhaseAttempt}, callCancel,
			models.RowResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			row := tt.row
			row.update(tt.read)
			call, got := row.debitOrClose()
			if call != tt.call || got != tt.want || (call == callDebit) != tt.read.MayDebit() {
				t.Errorf("%s with %+v, want %s with %+v", call, got, tt.call, tt.want)
			}
			if call == callCancel {
				call, got = row.next(call, rail.Result{Status: rail.Cancelled})
				want := models.OutcomeTimedOut
				if tt.read.Phase == models.PhaseAttempt && !tt.read.Cancelled {
					want = models.OutcomeCustomerNotActive
				}
				if calls := row.calls(); call != callNone || got.Outcome != want || (calls == -1) == row.row.InDoubt {
					t.Errorf("closed by the rail: %s with %+v, want %s", call, got, want)
				}
			}
		})
	}
}

// For all answers of the rail within the rules of the port, no decision breaks the rules about
// money.
func TestDecisionsKeepTheRules(t *testing.T) {
	phases := []models.DebitPhase{models.PhaseAttempt, models.PhaseClose, models.PhaseConfirm}
	laterPhases := []models.DebitPhase{models.PhaseAttempt, models.PhaseAttempt, models.PhaseClose}
	rapid.Check(t, func(t *rapid.T) {
		row := rowRun{
			phase:     rapid.SampledFrom(phases).Draw(t, "phase"),
			cancelled: rapid.Bool().Draw(t, "cancelled"),
			certain:   rapid.Bool().Draw(t, "certain"),
			row: models.ClaimedRow{
				InDoubt: rapid.Bool().Draw(t, "in doubt"),
				Account: models.DebitAccount{Linked: rapid.Bool().Draw(t, "linked")},
			},
		}
		maybeDebited := row.row.InDoubt || !row.certain // a debit call of unknown fate may have been made
		debits := 0
		call, result := row.first()
		for steps := 0; call != callNone; steps++ {
			if steps > 4 {
				t.Fatal("the row needs more and more calls")
			}
			if call == callDebit {
				read := models.Eligibility{ // right before the debit
					Phase:     rapid.SampledFrom(laterPhases).Draw(t, "phase now"),
					Cancelled: rapid.IntRange(0, 3).Draw(t, "cancelled now") == 0,
					Account:   models.DebitAccount{Linked: rapid.IntRange(0, 3).Draw(t, "linked now") > 0},
				}
				if !read.MayDebit() {
					row.update(read)
					if call, result = row.debitOrClose(); call == callDebit {
						t.Fatalf("a debit of %+v", row)
					}
					continue
				}
				if debits++; debits > 1 || !row.row.Account.Linked || row.cancelled ||
					row.phase != models.PhaseAttempt {
					t.Fatalf("debit %d of %+v", debits, row)
				}
			}
			answers := map[railCall][]rail.Status{
				callDebit: {rail.Succeeded, rail.Refused, rail.Cancelled, rail.Unavailable, rail.Unknown,
					rail.Conflict, rail.Invalid},
				callLookup: {rail.Succeeded, rail.Refused, rail.Cancelled, rail.NotFound, rail.Unknown},
				callCancel: {rail.Succeeded, rail.Refused, rail.Cancelled, rail.Unknown},
			}[call]
			status := rapid.SampledFrom(answers).Draw(t, call.String())
			maybeDebited = !status.Final() && (maybeDebited || call == callDebit && status == rail.Unknown)
			call, result = row.next(call, rail.Result{Status: status, Reason: rail.Declined})
			if (result.Outcome == models.OutcomeSucceeded) != (call == callNone && status == rail.Succeeded) {
				t.Fatalf("answer %s, result %+v", status, result)
			}
		}
		if result.Outcome != "" && !result.FromRail && (row.row.InDoubt || !row.certain || row.debitInDoubt) {
			t.Fatalf("closed without an answer of the rail: %+v of %+v", result, row)
		}
		if maybeDebited && row.certain && (result.Outcome != "" || result.Release) {
			t.Fatalf("a row in doubt got the result %+v", result)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: time.Second, 1: 1500 * time.Millisecond, 4: 5062500 * time.Microsecond, 15: 5 * time.Minute,
		1000: 5 * time.Minute,
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
