package jobs

import (
	"math"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// railCall is a call of the rail that a row needs next.
type railCall int

const (
	callNone   railCall = iota // no call: the row has a result for now
	callDebit                  // take the money
	callLookup                 // ask for the result of an earlier debit call
	callCancel                 // close the rail key against debits
)

func (c railCall) String() string { return [...]string{"none", "debit", "lookup", "cancel"}[c] }

// chargedTo returns the organisation for which the rail admits a call. The rail admits debits
// fairly between organisations. Look-ups and cancellations count for none: the id is zero.
func (c railCall) chargedTo(organisation models.OrganisationID) models.OrganisationID {
	if c == callDebit {
		return organisation
	}
	return models.OrganisationID{}
}

// rowRun is a row of a batch in one run of its chunk, or a checkout payment in the form of such a
// row. Its methods make all decisions about money. They depend on the row and the rail's answers
// only.
type rowRun struct {
	row       models.ClaimedRow
	payee     payee
	phase     models.DebitPhase
	cancelled bool      // by the partner, or by an operator after a restore: no debit may begin
	paused    bool      // by an operator: no debit may begin now
	certain   bool      // the database cannot have lost a debit call: a row without one may be closed without the rail
	late      bool      // no debit may begin any more: the time for attempts has ended, or the charge is zero
	readAt    time.Time // the process's time right before the row was read

	debited      bool             // this run has made a debit call
	debitInDoubt bool             // this run's debit call had no certain answer
	invalid      bool             // the rail has answered Invalid
	answered     bool             // the rail has answered a call of this run
	held         rail.Particulars // of the debit under the key, as last reported by the rail
}

// payee is the organisation and the Site that a row pays, and the currency.
type payee struct {
	organisation models.OrganisationID
	site         models.SiteID
	currency     string
}

// debit returns the debit of the row.
func (r *rowRun) debit() rail.Debit {
	return rail.Debit{
		Key: r.row.RailKey, AgreementID: r.row.Account.AgreementID, CustomerID: r.row.Account.CustomerID,
		Amount: r.row.Amount, Currency: r.payee.currency, OrganisationID: r.payee.organisation, SiteID: r.payee.site,
	}
}

// update applies the eligibility that a recheck has read from the database.
func (r *rowRun) update(e models.Eligibility) {
	r.late, r.cancelled, r.paused = e.Phase != models.PhaseAttempt, e.Cancelled, e.Paused
	r.row.Account = e.Account
}

// mayDebit reports whether a debit may begin, now or after a pause.
func (r *rowRun) mayDebit() bool {
	return r.inTime() && !r.cancelled && r.row.Account.Linked && !r.row.Account.Unreadable
}

// waits reports whether a row that may be debited must wait until its organisation's debits are
// resumed.
func (r *rowRun) waits() bool { return r.paused && r.mayDebit() }

// inTime reports whether the time for attempts lasts.
func (r *rowRun) inTime() bool { return r.phase == models.PhaseAttempt && !r.late }

// isUnreadable reports whether a row could be debited, but has a customer whose sealed data this
// process cannot open. A process with the right master key can go on.
func (r *rowRun) isUnreadable() bool {
	return r.inTime() && !r.cancelled && r.row.Account.Linked && r.row.Account.Unreadable
}

// first returns the first call of a claimed row or, with callNone, its result.
func (r *rowRun) first() (railCall, models.RowResult) {
	if r.row.InDoubt && r.inTime() && !r.isUnreadable() {
		return callLookup, models.RowResult{}
	}
	return r.debitOrClose()
}

// debitOrClose decides for a row under whose key the rail is not known to hold a debit. A row that
// may be debited is debited, or waits while it is paused or unreadable. Any other row is closed. A
// debit call may still be on its way: from this run, from an earlier run, or from a time that the
// database has lost. Then only Cancel can close the row; otherwise no call is needed.
func (r *rowRun) debitOrClose() (railCall, models.RowResult) {
	switch {
	case r.isUnreadable():
		return callNone, r.unreadable()
	case r.waits():
		return callNone, r.released()
	case r.mayDebit():
		return callDebit, models.RowResult{}
	case r.mayHaveCalled():
		return callCancel, models.RowResult{}
	default:
		return callNone, r.settled(r.closedOutcome())
	}
}

// mayHaveCalled reports whether a debit call of the row may have been made, ever.
func (r *rowRun) mayHaveCalled() bool {
	return r.row.InDoubt || r.row.CalledBefore || r.debited || !r.certain
}

// next returns the call that follows the rail's answer to a call or, with callNone, the row's
// result.
func (r *rowRun) next(call railCall, answer rail.Result) (railCall, models.RowResult) {
	calledBefore := r.row.InDoubt || r.debited // an earlier debit may have arrived
	r.noteAnswer(call, answer)
	if answer.Status == rail.Conflict || r.conflicts() {
		return callNone, r.undecidable(models.AlertRailConflict)
	}
	if r.row.Account.Unreadable && (answer.Status == rail.Succeeded || r.held != (rail.Particulars{})) {
		return callNone, r.incomparable()
	}
	switch answer.Status {
	case rail.Succeeded:
		return callNone, r.settledByRail(models.OutcomeSucceeded)
	case rail.Refused:
		return callNone, r.settledByRail(outcomeOf(answer.Reason))
	case rail.Cancelled:
		if r.hasForgotten() {
			return callNone, r.undecidable(models.AlertRailForgot)
		}
		return callNone, r.settledByRail(r.closedOutcome())
	case rail.NotFound:
		if r.hasForgotten() {
			return callNone, r.undecidable(models.AlertRailForgot)
		}
		if !r.debited {
			return r.debitOrClose()
		}
	case rail.Invalid:
		if r.invalid = true; calledBefore || !r.certain {
			return callCancel, models.RowResult{}
		}
		return callNone, r.settled(r.closedOutcome())
	case rail.Unavailable:
		if call == callDebit {
			return callNone, r.released()
		}
	case rail.Unknown, rail.Conflict:
	}
	if call == callDebit && !r.debitInDoubt {
		r.debitInDoubt = true
		return callLookup, models.RowResult{}
	}
	return callNone, r.unsettled()
}

// noteAnswer records the facts of an answer that later decisions need.
func (r *rowRun) noteAnswer(call railCall, answer rail.Result) {
	if call == callDebit {
		r.debited = true
	}
	r.answered = r.answered || answer.Status != rail.Unknown
	if answer.Held != (rail.Particulars{}) {
		r.held = answer.Held
	}
}

// conflicts reports whether the rail holds another debit under the key. It does not compare the
// agreement if the row has none: the row was never bound to a customer, or the customer is
// unreadable.
func (r *rowRun) conflicts() bool {
	ours := r.debit()
	if ours.AgreementID == "" {
		ours.AgreementID = r.held.AgreementID
	}
	return r.held.ConflictsWith(ours)
}

// hasForgotten reports whether the rail, which holds nothing under the key, may have forgotten a
// debit.
func (r *rowRun) hasForgotten() bool { return r.row.Forgotten && r.held == (rail.Particulars{}) }

// closedOutcome returns the outcome of a row that was not debited and never will be.
func (r *rowRun) closedOutcome() models.RowOutcome {
	switch {
	case r.invalid:
		return models.OutcomeDeclined
	case r.inTime() && !r.cancelled && !r.row.Account.Linked:
		return models.OutcomeCustomerNotActive
	default:
		return models.OutcomeTimedOut // the store turns it into "cancelled" if the batch was cancelled
	}
}

// released returns the result that ends a run without another call. It releases a row that was
// certainly not debited. A row with a debit call in doubt stays in doubt.
func (r *rowRun) released() models.RowResult {
	result := r.unsettled()
	result.Release = !r.row.InDoubt && !r.debitInDoubt
	return result
}

// settled returns the result that settles a row without an answer of the rail.
func (r *rowRun) settled(outcome models.RowOutcome) models.RowResult {
	result := r.unsettled()
	result.Outcome = outcome
	return result
}

// settledByRail returns the result that settles a row by an answer of the rail.
func (r *rowRun) settledByRail(outcome models.RowOutcome) models.RowResult {
	result := r.settled(outcome)
	result.FromRail = true
	return result
}

// undecidable returns the result of a row whose outcome the rail cannot tell. It raises an alert of
// the given kind, and an operator must decide.
func (r *rowRun) undecidable(alert string) models.RowResult {
	result := r.settledByRail(models.OutcomeUnconfirmed)
	result.Alert = alert
	return result
}

// unreadable returns the result of a row whose customer is unreadable. It raises an alert and, as
// released does, releases the row or leaves it in doubt.
func (r *rowRun) unreadable() models.RowResult {
	result := r.released()
	result.Alert = models.AlertPartyUnreadable
	return result
}

// incomparable returns the result of a row that cannot be compared with the debit that the rail
// holds under its key: the row's agreement is unreadable. It raises an alert, and the row stays in
// doubt.
func (r *rowRun) incomparable() models.RowResult {
	result := r.unsettled()
	result.Alert = models.AlertPartyUnreadable
	return result
}

// unsettled returns the result of a row that stays open and in doubt.
func (r *rowRun) unsettled() models.RowResult {
	return models.RowResult{
		Index: r.row.Index, RailKey: r.row.RailKey, Calls: r.calls(), Answered: r.answered, Confirming: r.row.Settled,
	}
}

// calls returns the correction of the row's count of debit calls: −1, 0 or 1. In the attempt phase,
// the claim of a row that was not in doubt has counted a call in advance.
func (r *rowRun) calls() int {
	made, counted := 0, 0
	if r.debited {
		made = 1
	}
	if r.phase == models.PhaseAttempt && !r.row.InDoubt {
		counted = 1
	}
	return made - counted
}

// outcomeOf returns the outcome of a row that the rail refused for a reason.
func outcomeOf(reason rail.Reason) models.RowOutcome {
	switch reason {
	case rail.InsufficientFunds:
		return models.OutcomeInsufficientFunds
	case rail.AccountUnavailable:
		return models.OutcomeAccountUnavailable
	case rail.LimitExceeded:
		return models.OutcomeLimitExceeded
	case rail.DeclinedByCustomer:
		return models.OutcomeDeclinedByCustomer
	default:
		return models.OutcomeDeclined
	}
}

// The parameters of retryAfter.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Minute
	retryGrowth   = 1.5
	retryJitter   = 0.2
)

// retryAfter returns the backoff of a row after its n-th try (from 0) without a final answer. The
// backoff grows from one second by half each time, up to five minutes, with a jitter of ±20 %.
// After an outage of duration d, rows are thus retried within about d/2. random is in [0, 1).
func retryAfter(n int, random float64) time.Duration {
	wait := min(float64(minRetryAfter)*math.Pow(retryGrowth, float64(n)), float64(maxRetryAfter))
	return time.Duration(wait * (1 - retryJitter + 2*retryJitter*random))
}
