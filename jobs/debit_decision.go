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

// payee is the organisation whose turn on the rail a call for one takes: nobody's, where it settles what is in doubt.
func (c railCall) payee(organisation models.OrganisationID) models.OrganisationID {
	if c == callDebit {
		return organisation
	}
	return models.OrganisationID{}
}

// rowRun is one row's way through one run of its chunk. Its methods are the whole of what is decided about money: they
// look at nothing but the row and the rail's answers.
type rowRun struct {
	row       models.ClaimedRow
	phase     models.DebitPhase
	cancelled bool      // the batch was cancelled by the partner
	late      bool      // the time for attempts has gone by since the row was claimed
	readAt    time.Time // when the row was read, or a little before

	debited  bool // this run has made a debit call
	lookedUp bool // this run has looked the key up after its own debit call
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

// debitOrClose decides for a row under whose key nothing has arrived at the rail. In doubt, something may still arrive, so
// that only Cancel can close it; and once it is too late for an attempt, the rail's word is needed in any case.
func (r *rowRun) debitOrClose() (railCall, models.RowResult) {
	switch {
	case r.mayDebit():
		return callDebit, models.RowResult{}
	case !r.inTime() || r.row.InDoubt || r.debited:
		return callCancel, models.RowResult{}
	default:
		return callNone, r.settled(r.closedOutcome())
	}
}

// next decides what follows a rail's answer.
func (r *rowRun) next(call railCall, answer rail.Result) (railCall, models.RowResult) {
	if call == callDebit {
		r.debited = true
	}
	switch answer.Status {
	case rail.Succeeded:
		return callNone, r.settled(models.OutcomeSucceeded)
	case rail.Cancelled:
		return callNone, r.settled(r.closedOutcome())
	case rail.Refused:
		if answer.Reason != rail.KeyReused { // then the key's own fate decides, and only a look-up tells it
			return callNone, r.settled(outcomeOf(answer.Reason))
		}
	case rail.NotFound:
		if !r.debited {
			return r.debitOrClose()
		}
	case rail.Unavailable:
		if call == callDebit {
			return callNone, r.released()
		}
	case rail.Unknown:
	}
	if call == callDebit && !r.lookedUp {
		r.lookedUp = true
		return callLookup, models.RowResult{}
	}
	return callNone, r.unsettled()
}

// closedOutcome is how a row ends that was not debited and never will be.
func (r *rowRun) closedOutcome() models.RowOutcome {
	if r.inTime() && !r.cancelled && !r.row.Account.Linked {
		return models.OutcomeCustomerNotActive
	}
	return models.OutcomeTimedOut // the store writes "cancelled" where the partner cancelled
}

// released gives a row back that this run certainly did not debit. An earlier call that is still in doubt is not cleared by
// that, and keeps the row in doubt.
func (r *rowRun) released() models.RowResult {
	result := r.unsettled()
	result.Release = !r.row.InDoubt && !r.lookedUp
	return result
}

func (r *rowRun) settled(outcome models.RowOutcome) models.RowResult {
	return models.RowResult{Index: r.row.Index, Outcome: outcome, Calls: r.calls()}
}

func (r *rowRun) unsettled() models.RowResult {
	return models.RowResult{Index: r.row.Index, Calls: r.calls()}
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
