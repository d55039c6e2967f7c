// Package reconcile compares the ledger with the rail's list of debits, both ways: each debit must
// have its entry, and each entry its debit, with the same amount, currency and agreement.
//
// The comparison reads the rail's list by time, in pages. It reads the ledger in windows of time,
// and within a window by Site, time and key. The rail's list has a watermark below which it never
// changes. The comparison ends there, or RecordingDelay before now if that is earlier: the service
// has recorded the rail's answers up to that time. A debit without an entry is in flight while its
// row or payment is open. It is no finding, and the reconciliation task looks at it again.
//
// The ledger stays behind the list by Skew, so that the list shows a debit before the ledger shows
// its entry. If an entry's debit was not listed, the comparison looks it up on the rail: the debit
// may be much older. The list is read again from Overlap before the time up to which both sides
// have been compared, because a gateway might list a debit late, against its contract.
//
// Memory is bounded: a page of the list, a page of the ledger, and the digests of the keys listed
// last. The ledger is compared in windows of at most one page, or of one millisecond. Differences
// are handed over after each full chunk of maxLookups look-ups, or once there are maxLookups. The
// comparison holds no transaction and no lock while it calls the rail.
package reconcile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

const (
	// RecordingDelay is how long before now the comparison ends, so that the rail's answers have
	// been recorded.
	RecordingDelay = time.Minute
	// Skew is how far the ledger stays behind the rail's list. It exceeds the difference between
	// the clocks of rail and database, and the time in which most debits get their entries.
	Skew = 30 * time.Second
	// Overlap is how far before the compared time the rail's list is read again.
	Overlap = 2 * time.Minute

	// ledgerPage is the maximum number of ledger entries that one statement reads.
	ledgerPage = 500
	// entriesPerLookup is the number of entries of a window for each look-up that may be in flight.
	// The comparison moves on from window to window. If every entry needs a look-up and each takes
	// 3 seconds, a window takes 75 seconds, within the 80 seconds of one run of the task.
	entriesPerLookup = 25
	// maxLookups is the maximum number of keys of one look-up.
	maxLookups = 100
)

// Comparer compares ledger and rail. Its fields must be set. It is safe for concurrent use.
type Comparer struct {
	Store *models.Store
	Rail  rail.Rail
	// RailConcurrency is the number of calls that may be in flight on the rail.
	RailConcurrency int
}

// lookupsInFlight returns the maximum number of look-ups in flight of one comparison: an eighth of
// the rail's calls, at least 1. The others are for debits, which must not wait for a long
// comparison.
func (c *Comparer) lookupsInFlight() int { return max(1, c.RailConcurrency/8) }

// pageSize returns the maximum number of ledger entries that one statement reads: at most
// ledgerPage, and entriesPerLookup for each look-up that may be in flight.
func (c *Comparer) pageSize() int { return min(ledgerPage, entriesPerLookup*c.lookupsInFlight()) }

// Step is the result of one part of the comparison.
type Step struct {
	// To is the time up to which ledger and list have been compared. It stays at least Skew behind
	// the time that the list has reached.
	To models.Millis
	// Differences are the differences of the step, at most one for each rail key.
	Differences []models.Difference
	Debits      int // listed debits that were compared
	Entries     int // ledger entries that were compared
}

// ForgottenError says that the rail may have dropped debits of the time to compare. The rail lists
// all debits from CompleteFrom on.
type ForgottenError struct{ CompleteFrom models.Millis }

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("reconcile: the rail lists no debits before %s", e.CompleteFrom.Time().Format(time.RFC3339))
}

// Compare compares debits and entries from the time from, inclusive, to the time to, exclusive. It
// calls do with each step, in order of time, and returns an error of do at once. Compare ends
// before to if the rail's watermark, or RecordingDelay before now, is earlier. It leaves the
// entries of the last Skew before its end to a later call.
//
// Errors: *ForgottenError if the rail's list does not reach back to from; ErrRail if the rail gives
// no answer; errors of do and of the store.
func (c *Comparer) Compare(ctx context.Context, from, to models.Millis, do func(Step) error) error {
	state, err := c.Store.Reconciliation(ctx)
	if err != nil {
		return err
	}
	run := &run{Comparer: c, at: from, to: min(to, state.Now.Add(-RecordingDelay)), do: do}
	query := rail.ListQuery{From: max(from.Add(-Overlap), state.Since, 0), To: run.to, Limit: rail.MaxListed}
	for run.at < run.to {
		page, err := c.list(ctx, query)
		if err != nil {
			return err
		}
		if err := run.compare(ctx, page); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		query = query.After(page.Debits[len(page.Debits)-1])
	}
	return nil
}

// list waits for admission and reads a page of the rail's list.
func (c *Comparer) list(ctx context.Context, q rail.ListQuery) (rail.ListPage, error) {
	if c.Rail.Admit(ctx, models.OrganisationID{}, 1) == 0 {
		return rail.ListPage{}, fmt.Errorf("%w: no request was admitted: %w", ErrRail, ctx.Err())
	}
	page, err := c.Rail.List(ctx, q)
	if err != nil {
		return page, fmt.Errorf("%w: %w", ErrRail, err)
	}
	return page, nil
}

// ErrRail says that the rail gives no answer. The comparison can continue later.
var ErrRail = errors.New("reconcile: the rail gives no answer")

// run is one call of Compare.
type run struct {
	*Comparer
	at, to models.Millis // the ledger is compared up to at
	do     func(Step) error
	listed recentKeys
	window time.Duration // the length of the ledger's next window; 0: up to the end
	step   Step          // what was compared since the last report
}

// compare compares a page of the rail's list, and the ledger up to Skew before the time that the
// page reaches. It reports at least one step.
func (r *run) compare(ctx context.Context, page rail.ListPage) error {
	if page.CompleteFrom > r.at {
		return &ForgottenError{page.CompleteFrom}
	}
	facts := make([]Fact, len(page.Debits))
	for i, d := range page.Debits {
		r.listed.add(d.Key)
		facts[i] = Fact{
			Key: d.Key, DebitedAt: d.DebitedAt, Answer: rail.Result{Status: rail.Succeeded, Held: d.Particulars},
		}
	}
	differences, err := r.Judge(ctx, facts)
	if err != nil {
		return err
	}
	reached := min(r.to, page.CompleteTo)
	if page.More {
		reached = page.Debits[len(page.Debits)-1].DebitedAt
	}
	r.step.Debits += len(facts)
	r.step.Differences = append(r.step.Differences, differences...)
	end := reached.Add(-Skew)
	if end <= r.at {
		return r.report()
	}
	for r.at < end {
		if err := r.compareWindow(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

// compareWindow compares the ledger's next window, which ends at end or earlier, with the listed
// debits. It moves r.at to the end of the window and reports a step.
func (r *run) compareWindow(ctx context.Context, end models.Millis) error {
	entries, to, err := r.nextWindow(ctx, end)
	for err == nil {
		if err = r.compareEntries(ctx, entries); err != nil || len(entries) < r.pageSize() {
			break
		}
		after := entries[len(entries)-1].Position()
		entries, err = r.Store.LedgerBetween(ctx, r.at, to, after, r.pageSize())
	}
	if err != nil {
		return err
	}
	r.at = to
	return r.report()
}

// nextWindow chooses the end of the next window, so that the window has less than a page of entries
// or is a millisecond long. It returns the window's first page of entries and its end.
func (r *run) nextWindow(
	ctx context.Context, end models.Millis,
) (entries []models.LedgerEntry, to models.Millis, err error) {
	to = end
	if r.window > 0 {
		to = min(end, r.at.Add(r.window))
	}
	for {
		entries, err = r.Store.LedgerBetween(ctx, r.at, to, models.LedgerPosition{}, r.pageSize())
		length := to.Sub(r.at)
		if err != nil || len(entries) < r.pageSize() || length <= time.Millisecond {
			r.window = 2 * length
			return entries, to, err
		}
		to = r.at.Add(max(length/2, time.Millisecond))
	}
}

// compareEntries looks up the entries on the rail whose debits were not listed. It reports a step
// after each full chunk of maxLookups look-ups, or once there are maxLookups differences. The
// differences found so far then do not wait for a rail that is slow or has lost its debits.
func (r *run) compareEntries(ctx context.Context, entries []models.LedgerEntry) error {
	r.step.Entries += len(entries)
	var unlisted []string
	for i := range entries {
		if !r.listed.has(entries[i].RailKey) {
			unlisted = append(unlisted, entries[i].RailKey)
		}
	}
	for keys := range slices.Chunk(unlisted, maxLookups) {
		found, err := r.Check(ctx, keys)
		if err != nil {
			return err
		}
		r.step.Differences = append(r.step.Differences, found...)
		if len(keys) == maxLookups || len(r.step.Differences) >= maxLookups {
			if err := r.report(); err != nil {
				return err
			}
		}
	}
	return nil
}

// report passes the step, which ends at r.at, to do. The next step begins empty.
func (r *run) report() error {
	step := r.step
	step.To, step.Differences = r.at, onePerKey(step.Differences)
	r.step = Step{}
	return r.do(step)
}

// onePerKey keeps the first difference of each rail key.
func onePerKey(all []models.Difference) []models.Difference {
	var kept []models.Difference
	seen := make(map[string]bool, len(all))
	for _, d := range all {
		if !seen[d.RailKey] {
			seen[d.RailKey] = true
			kept = append(kept, d)
		}
	}
	return kept
}

// recentKeys remembers digests of the keys that were added last: at least the last maxRecent, and
// at most twice that number. The zero recentKeys is empty.
type recentKeys struct {
	newer, older map[[16]byte]struct{}
}

// maxRecent bounds the number of remembered keys, and so the memory of a comparison.
const maxRecent = 200_000

// digest returns half of the key's SHA-256, which takes less memory than the key.
func digest(key string) [16]byte {
	sum := sha256.Sum256([]byte(key))
	return [16]byte(sum[:16])
}

func (k *recentKeys) add(key string) {
	if len(k.newer) >= maxRecent {
		k.older, k.newer = k.newer, nil
	}
	if k.newer == nil {
		k.newer = make(map[[16]byte]struct{})
	}
	k.newer[digest(key)] = struct{}{}
}

func (k *recentKeys) has(key string) bool {
	d := digest(key)
	_, newer := k.newer[d]
	_, older := k.older[d]
	return newer || older
}
