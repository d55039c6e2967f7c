package jobs

import (
	"math"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// railCall is what a row needs from the rail next.
type railCall int

const (
	callNone   railCall = iota // nothing: the row's result is known, or must wait
	callDebit                  // take the money
	callLookup                 // ask what became of an earlier call
	callCancel                 // close the key for ever
)

func (c railCall) String() string { return [...]string{"none", "debit", "lookup", "cancel"}[c] }

// admittedFor is the organisation whose share of the rail a call takes: none for calls that resolve doubt.
func (c railCall) admittedFor(organisation models.OrganisationID) models.OrganisationID {
	if c == callDebit {
		return organisation
	}
	return models.OrganisationID{}
}

// rowRun is one row's way through one run of its chunk. Its methods are the whole of what is decided about money: they
// look at nothing but the row and the rail's answers.
type rowRun struct {
	row       models.ClaimedRow
	payee     payee
	phase     models.DebitPhase
	cancelled bool      // no debit may begin: by the partner, or by an operator after a restore
	certain   bool      // no loss of the database can matter: a row without a debit call may be closed without asking
	late      bool      // the time for attempts has gone by since the row was claimed
	readAt    time.Time // when the row was read, or a little before

	debited  bool             // this run has made a debit call
	lookedUp bool             // this run has looked the key up after its own debit call
	invalid  bool             // the rail cannot carry the debit out as it stands
	called   bool             // the rail has answered
	held     rail.Particulars // what the rail holds under the key, as far as it has said
}

// payee is the party that a row pays, and in which currency.
type payee struct {
	organisation models.OrganisationID
	site         models.SiteID
	currency     string
}

// debit is the order to take the row's money.
func (r *rowRun) debit() rail.Debit {
	return rail.Debit{
		Key: r.row.RailKey, AgreementID: r.row.Account.AgreementID, CustomerID: r.row.Account.CustomerID,
		Amount: r.row.Amount, Currency: r.payee.currency, OrganisationID: r.payee.organisation, SiteID: r.payee.site,
	}
}

// see takes in what has been read anew right before a debit, and did not allow for it.
func (r *rowRun) see(e models.Eligibility) {
	r.late, r.cancelled, r.row.Account = e.Phase != models.PhaseAttempt, e.Cancelled, e.Account
}

// mayDebit reports whether a debit may begin.
func (r *rowRun) mayDebit() bool { return r.inTime() && !r.cancelled && r.row.Account.Linked }

func (r *rowRun) inTime() bool { return r.phase == models.PhaseAttempt && !r.late }

// first decides how a claimed row begins.
func (r *rowRun) first() (railCall, models.RowResult) {
	if r.row.InDoubt && r.inTime() {
		return callLookup, models.RowResult{}
	}
	return r.debitOrClose()
}

// debitOrClose decides for a row under whose key nothing has arrived at the rail. Where a debit call may have been made,
// by this run, by an earlier one, or in a time that the database has lost, something may still arrive: only Cancel can
// close the row. A row without one is closed without asking.
func (r *rowRun) debitOrClose() (railCall, models.RowResult) {
	switch {
	case r.mayDebit():
		return callDebit, models.RowResult{}
	case r.mayHaveCalled():
		return callCancel, models.RowResult{}
	default:
		return callNone, r.settled(r.closedOutcome())
	}
}

func (r *rowRun) mayHaveCalled() bool { return r.row.InDoubt || r.debited || !r.certain }

// next decides what follows a rail's answer.
func (r *rowRun) next(call railCall, answer rail.Result) (railCall, models.RowResult) {
	known := r.row.InDoubt || r.debited || r.lookedUp // something may have arrived before this answer's call
	r.note(call, answer)
	if answer.Status == rail.Conflict || r.conflicts() {
		return callNone, r.undecidable(models.AlertRailConflict)
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
		if r.invalid = true; known || !r.certain {
			return callCancel, models.RowResult{}
		}
		return callNone, r.settled(r.closedOutcome())
	case rail.Unavailable:
		if call == callDebit {
			return callNone, r.released()
		}
	case rail.Unknown, rail.Conflict:
	}
	if call == callDebit && !r.lookedUp {
		r.lookedUp = true
		return callLookup, models.RowResult{}
	}
	return callNone, r.unsettled()
}

// note keeps what an answer says beyond its status.
func (r *rowRun) note(call railCall, answer rail.Result) {
	if call == callDebit {
		r.debited = true
	}
	r.called = r.called || answer.Status != rail.Unknown
	if answer.Held != (rail.Particulars{}) {
		r.held = answer.Held
	}
}

// conflicts reports whether the rail holds another debit under the key. A row that was never bound to a customer has no
// account to compare.
func (r *rowRun) conflicts() bool {
	ours := r.debit()
	if ours.AgreementID == "" {
		ours.AgreementID = r.held.AgreementID
	}
	return r.held.ConflictsWith(ours)
}

// hasForgotten reports whether a rail that knows of no debit under the key may have forgotten it.
func (r *rowRun) hasForgotten() bool { return r.row.Forgotten && r.held == (rail.Particulars{}) }

// closedOutcome is how a row ends that was not debited and never will be.
func (r *rowRun) closedOutcome() models.RowOutcome {
	switch {
	case r.invalid:
		return models.OutcomeDeclined
	case r.inTime() && !r.cancelled && !r.row.Account.Linked:
		return models.OutcomeCustomerNotActive
	default:
		return models.OutcomeTimedOut // the store writes "cancelled" where the batch was cancelled
	}
}

// released gives a row back that this run certainly did not debit. An earlier call that is still in doubt is not cleared by
// that, and keeps the row in doubt.
func (r *rowRun) released() models.RowResult {
	result := r.unsettled()
	result.Release = !r.row.InDoubt && !r.lookedUp
	return result
}

// settled ends a row by what this side knows.
func (r *rowRun) settled(outcome models.RowOutcome) models.RowResult {
	result := r.unsettled()
	result.Outcome = outcome
	return result
}

// settledByRail ends a row by what the rail said about its key.
func (r *rowRun) settledByRail(outcome models.RowOutcome) models.RowResult {
	result := r.settled(outcome)
	result.RailsWord = true
	return result
}

// undecidable ends a row whose outcome the rail cannot tell: an operator must decide.
func (r *rowRun) undecidable(alert string) models.RowResult {
	result := r.settledByRail(models.OutcomeUnconfirmed)
	result.Alert = alert
	return result
}

func (r *rowRun) unsettled() models.RowResult {
	return models.RowResult{
		Index: r.row.Index, RailKey: r.row.RailKey, Calls: r.calls(), Called: r.called, Confirming: r.row.Settled,
	}
}

// calls corrects the row's count of debit calls: the claim of a row that was not in doubt has counted one already.
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

const (
	firstRetryAfter = time.Second
	lastRetryAfter  = 5 * time.Minute
	retryGrowth     = 1.5
	retryJitter     = 0.2
)

// retryAfter is how long a row waits after its n-th try (from 0) that brought no final answer: one second, half as long
// again each time, five minutes at the most, and up to 20 % more or less, so that what failed together does not come back
// together. An outage of a duration d is so made up for within about d/2 of its end. random is in [0, 1).
func retryAfter(n int, random float64) time.Duration {
	wait := min(float64(firstRetryAfter)*math.Pow(retryGrowth, float64(n)), float64(lastRetryAfter))
	return time.Duration(wait * (1 - retryJitter + 2*retryJitter*random))
}
