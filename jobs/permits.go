package jobs

import (
	"context"
	"sync/atomic"

	"partnerbilling/models"
)

// Permits bounds the concurrent rail calls of a process for rows and payments (call permits). It
// also bounds the rows that the process claims ahead of their calls (claim permits). Rail calls of
// the reconciliation and of operators need no permit. A claim waits for a claim permit for each of
// its rows. The row holds the permit until its call begins. Rows and their customers' links are
// therefore read shortly before the debit, and the next rows are ready when call permits are
// released.
//
// Permits of both kinds are granted in waves, so that calls and claims are large. A wave goes to
// the organisation that holds the fewest permits, so that an organisation with much work cannot
// starve another. If several hold equally few, the oldest run comes first. Its rows are then
// debited and recorded together, rather than a few rows of every run at a time.
//
// Permits is safe for concurrent use.
type Permits struct {
	calls, claims *semaphore
	tickets       atomic.Uint64 // number of the latest ticket
}

// Ticket is the position of a run in the queue for permits: its organisation, and its number among
// all runs that have begun in the process.
type Ticket struct {
	organisation models.OrganisationID
	number       uint64
}

// checkoutTicket is the ticket of all checkout payments. Payments come before all other runs, since
// a customer waits at a till.
var checkoutTicket Ticket

const (
	// callWaves is the number of waves into which the call permits are divided. More waves make
	// calls smaller. Fewer waves leave more permits idle until a wave is full.
	callWaves = 8
	// claimWaves is the number of waves into which the claim permits are divided. It is smaller:
	// large claims matter more than idle permits.
	claimWaves = 4
	// minClaimPermits is the minimum number of claim permits. It prevents claims of single rows.
	minClaimPermits = 8
)

// NewPermits returns n call permits, at least 1, and a quarter more claim permits, at least
// minClaimPermits. The surplus lets a claim run while all call permits are being released and
// acquired.
func NewPermits(n int) *Permits {
	n = max(n, 1)
	return &Permits{
		calls:  newSemaphore(n, callWaves),
		claims: newSemaphore(max(n+n/4, minClaimPermits), claimWaves),
	}
}

// Ticket returns the ticket of a new run of the organisation.
func (p *Permits) Ticket(organisation models.OrganisationID) Ticket {
	return Ticket{organisation, p.tickets.Add(1)}
}

// AcquireCalls waits for a wave of call permits and takes all that are free, up to n. It returns
// the number taken: 0 if the context ends first.
func (p *Permits) AcquireCalls(ctx context.Context, ticket Ticket, n int) int {
	return p.calls.acquire(ctx, ticket, n)
}

// ReleaseCalls returns n call permits of an organisation.
func (p *Permits) ReleaseCalls(organisation models.OrganisationID, n int) {
	p.calls.release(organisation, n)
}

// AcquireClaims acquires claim permits as AcquireCalls acquires call permits.
func (p *Permits) AcquireClaims(ctx context.Context, ticket Ticket, n int) int {
	return p.claims.acquire(ctx, ticket, n)
}

// ReleaseClaims returns n claim permits of an organisation.
func (p *Permits) ReleaseClaims(organisation models.OrganisationID, n int) {
	p.claims.release(organisation, n)
}
