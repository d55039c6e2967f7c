package reconcile

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// Fact is what the rail says about a key.
type Fact struct {
	Key       string
	DebitedAt models.Millis      // by the rail's list; 0: unknown
	Answer    rail.Result        // as Lookup reports it
	Earlier   *models.Difference // what an earlier comparison found; nil: nothing
}

// wasDebited reports whether the rail says that it debited, or said so to an earlier comparison.
func (f *Fact) wasDebited() bool { return f.Answer.Status == rail.Succeeded || f.isDeniedLater() }

// isDeniedLater reports whether the rail now denies a debit that an earlier comparison found on the
// rail.
func (f *Fact) isDeniedLater() bool {
	switch f.Answer.Status {
	case rail.Refused, rail.Cancelled, rail.NotFound:
	default:
		return false
	}
	e := f.Earlier
	return e != nil && (e.DebitedAt != 0 || e.Kind == models.DifferenceUnknown || e.Kind == models.DifferenceUnrecorded)
}

// Check looks keys up on the rail and returns the differences between its answers and the ledger.
// It returns ErrRail if the rail admits no request, or answers neither about the keys nor about a
// control key.
func (c *Comparer) Check(ctx context.Context, keys []string) ([]models.Difference, error) {
	facts, err := c.lookup(ctx, keys)
	if err != nil {
		return nil, err
	}
	return c.Judge(ctx, facts)
}

// Recheck compares earlier differences again: aged ones with the ledger alone, others also with the
// rail. It returns the differences that remain, with their present kinds, and the rail keys of the
// resolved ones. A difference remains as it was if the rail does not answer about it. A debit
// without an entry remains a difference even if the rail denies it now, because the rail may have
// forgotten it. Recheck returns ErrRail as Check does, but never if all differences are aged.
func (c *Comparer) Recheck(
	ctx context.Context, earlier []models.Difference,
) (remain []models.Difference, resolved []string, err error) {
	recent, aged := SplitAged(earlier)
	if remain, err = c.recheckAged(ctx, aged); err != nil {
		return nil, nil, err
	}
	keys := keysOf(recent)
	facts, err := c.lookup(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	var answered []Fact
	for i, f := range facts {
		if f.Answer.Status == rail.Unknown {
			remain = append(remain, recent[i])
			continue
		}
		f.DebitedAt, f.Earlier = recent[i].DebitedAt, &recent[i]
		answered = append(answered, f)
	}
	found, err := c.Judge(ctx, answered)
	if err != nil {
		return nil, nil, err
	}
	remain = append(remain, found...)
	left := make(map[string]bool, len(remain))
	for _, d := range remain {
		left[d.RailKey] = true
	}
	for _, d := range earlier {
		if !left[d.RailKey] {
			resolved = append(resolved, d.RailKey)
		}
	}
	return remain, resolved, nil
}

// SplitAged separates the aged differences: those whose debits the rail may have forgotten.
func SplitAged(all []models.Difference) (recent, aged []models.Difference) {
	for _, d := range all {
		if d.Aged {
			aged = append(aged, d)
		} else {
			recent = append(recent, d)
		}
	}
	return recent, aged
}

// recheckAged compares differences that are older than the rail's memory with the ledger, without
// asking the rail, and returns those that remain. An entry resolves the difference of a debit that
// the rail has reported. An entry in flight without such a debit becomes denied: the rail has never
// confirmed it. A debit in flight without an entry becomes unrecorded.
func (c *Comparer) recheckAged(
	ctx context.Context, aged []models.Difference,
) (remain []models.Difference, err error) {
	if len(aged) == 0 {
		return nil, nil
	}
	entries, err := c.entries(ctx, keysOf(aged))
	if err != nil {
		return nil, err
	}
	for _, d := range aged {
		_, recorded := entries[d.RailKey]
		inFlight := d.Kind == models.DifferenceInFlight
		switch {
		case recorded && (!inFlight || d.DebitedAt != 0):
			continue
		case recorded:
			d.Kind = models.DifferenceDenied
		case inFlight:
			d.Kind = models.DifferenceUnrecorded
		}
		if inFlight {
			d.Detail += fmt.Sprintf(", after %d days", int(models.RailMemory.Hours())/24)
		}
		remain = append(remain, d)
	}
	return c.withoutDecided(ctx, remain, nil)
}

func keysOf(differences []models.Difference) []string {
	keys := make([]string, len(differences))
	for i, d := range differences {
		keys[i] = d.RailKey
	}
	return keys
}

// lookup asks the rail about keys, and returns the facts in the order of the keys. It returns
// ErrRail if the rail admits no request, or answers neither about the keys nor about a control key.
// Without the control, keys that the gateway cannot answer about would end every comparison.
func (c *Comparer) lookup(ctx context.Context, keys []string) ([]Fact, error) {
	facts := make([]Fact, len(keys))
	var mu sync.Mutex
	answered := 0
	for done := 0; done < len(keys); {
		n := c.Rail.Admit(ctx, models.OrganisationID{}, min(len(keys)-done, c.lookupsInFlight()))
		if n == 0 {
			return nil, fmt.Errorf("%w: no request was admitted: %w", ErrRail, ctx.Err())
		}
		part, offset := keys[done:done+n], done
		c.Rail.Lookup(ctx, part, func(i int, r rail.Result) {
			mu.Lock()
			defer mu.Unlock()
			facts[offset+i] = Fact{Key: part[i], Answer: r}
			if r.Status != rail.Unknown || r.Held != (rail.Particulars{}) {
				answered++
			}
		})
		done += n
	}
	if answered == 0 && len(keys) > 0 && !c.answersControl(ctx) {
		return nil, fmt.Errorf("%w: %s", ErrRail, facts[0].Answer.Detail)
	}
	return facts, nil
}

// answersControl reports whether the rail answers about a control key: a new one, which no debit
// has. The answer of a working rail is rail.NotFound.
func (c *Comparer) answersControl(ctx context.Context) bool {
	if c.Rail.Admit(ctx, models.OrganisationID{}, 1) == 0 {
		return false
	}
	control := models.PaymentRailKey(models.PaymentIntentID(uuid.New()))
	answer := rail.Result{}
	c.Rail.Lookup(ctx, []string{control}, func(_ int, r rail.Result) { answer = r })
	return answer.Status != rail.Unknown
}

// Judge returns the differences between facts and the ledger, at most one for each fact. It leaves
// out differences that an operator's decision explains.
func (c *Comparer) Judge(ctx context.Context, facts []Fact) ([]models.Difference, error) {
	if len(facts) == 0 {
		return nil, nil
	}
	keys := make([]string, len(facts))
	for i, f := range facts {
		keys[i] = f.Key
	}
	entries, err := c.entries(ctx, keys)
	if err != nil {
		return nil, err
	}
	subjects, err := c.subjects(ctx, facts, entries)
	if err != nil {
		return nil, err
	}
	var found []models.Difference
	deniedLater := map[string]bool{}
	for _, f := range facts {
		entry, recorded := entries[f.Key]
		subject, known := subjects[f.Key]
		d := models.Difference{RailKey: f.Key, DebitedAt: f.DebitedAt}
		switch {
		case recorded:
			d.SiteID = entry.SiteID
			d.Kind, d.Detail = compareEntry(entry, f.Answer)
		case !f.wasDebited():
			continue
		case known:
			d.SiteID = subject.SiteID
			d.Kind, d.Detail = compareSubject(subject, f)
		default:
			d.Kind, d.Detail = models.DifferenceUnknown, debitText(f)+"; no row or payment has the key"
		}
		if !recorded && f.isDeniedLater() {
			deniedLater[f.Key] = true
			d.Detail = f.deniedLaterDetail(d)
		}
		if d.Kind != "" {
			found = append(found, d)
		}
	}
	return c.withoutDecided(ctx, found, deniedLater)
}

// entries returns the ledger's entries of keys, by rail key.
func (c *Comparer) entries(ctx context.Context, keys []string) (map[string]models.LedgerEntry, error) {
	list, err := c.Store.LedgerOf(ctx, keys)
	entries := make(map[string]models.LedgerEntry, len(list))
	for _, e := range list {
		entries[e.RailKey] = e
	}
	return entries, err
}

// subjects returns the rows and payments of the debits without an entry, by rail key. A row or
// payment may get its entry between the two readings, so subjects reads the entries again and adds
// new ones to entries.
func (c *Comparer) subjects(
	ctx context.Context, facts []Fact, entries map[string]models.LedgerEntry,
) (map[string]models.DebitSubject, error) {
	var keys []string
	for _, f := range facts {
		if _, recorded := entries[f.Key]; !recorded && f.wasDebited() {
			keys = append(keys, f.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	list, err := c.Store.DebitSubjects(ctx, keys)
	if err != nil {
		return nil, err
	}
	subjects := make(map[string]models.DebitSubject, len(list))
	for _, s := range list {
		subjects[s.RailKey] = s
	}
	late, err := c.entries(ctx, keys)
	for key, e := range late {
		entries[key] = e
	}
	return subjects, err
}

// compareEntry compares an entry with the rail's answer. The kind is "" if they agree.
func compareEntry(e models.LedgerEntry, answer rail.Result) (kind models.DifferenceKind, detail string) {
	recorded := fmt.Sprintf("%s: %d %s in the ledger", e.Subject(), e.Amount, e.Currency)
	held := answer.Held
	switch answer.Status {
	case rail.Succeeded:
		switch {
		case held.Amount != e.Amount || held.Currency != e.Currency:
			return models.DifferenceParticulars,
				fmt.Sprintf("%s, %d %s on the rail", recorded, held.Amount, held.Currency)
		case e.AgreementID != "" && held.AgreementID != e.AgreementID:
			return models.DifferenceParticulars, recorded + ", from another account on the rail"
		}
		return "", ""
	case rail.Refused, rail.Cancelled, rail.NotFound:
		return models.DifferenceDenied, fmt.Sprintf("%s, %s on the rail", recorded, answer.Status)
	default:
		return models.DifferenceInFlight, recorded + ", no answer from the rail"
	}
}

// compareSubject judges a debit that has a row or payment, but no ledger entry.
func compareSubject(s models.DebitSubject, f Fact) (kind models.DifferenceKind, detail string) {
	if s.Open {
		return models.DifferenceInFlight, fmt.Sprintf("%s: %s; it is open", s.Subject(), debitText(f))
	}
	return models.DifferenceUnrecorded, fmt.Sprintf("%s: %s, nothing in the ledger; it ended as %s", s.Subject(),
		debitText(f), s.Outcome)
}

// nowSays precedes the present status in the detail of a debit that the rail denies later. The text
// before it is the detail of the earlier comparison, or the new one if the kind has changed.
const nowSays = "; the rail now says "

// deniedLaterDetail returns the detail of a difference d whose debit the rail denies later.
func (f *Fact) deniedLaterDetail(d models.Difference) string {
	before := d.Detail
	if d.Kind == f.Earlier.Kind { // the earlier detail has the amount
		before, _, _ = strings.Cut(f.Earlier.Detail, nowSays)
	}
	return before + nowSays + f.Answer.Status.String()
}

// debitText describes a debit. The rail no longer tells the amount of a debit that it denies.
func debitText(f Fact) string {
	if f.isDeniedLater() {
		return "debited on the rail"
	}
	return fmt.Sprintf("%d %s on the rail", f.Answer.Held.Amount, f.Answer.Held.Currency)
}

// withoutDecided leaves out differences that an operator's decision explains. A decision can
// explain that the rail denies an entry or holds other particulars, and that the rail denied a
// debit later. It explains no other difference.
func (c *Comparer) withoutDecided(
	ctx context.Context, found []models.Difference, deniedLater map[string]bool,
) ([]models.Difference, error) {
	explicable := func(d models.Difference) bool {
		return d.Kind == models.DifferenceDenied || d.Kind == models.DifferenceParticulars || deniedLater[d.RailKey]
	}
	var keys []string
	for _, d := range found {
		if explicable(d) {
			keys = append(keys, d.RailKey)
		}
	}
	if len(keys) == 0 {
		return found, nil
	}
	list, err := c.Store.DecidedKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	decided := make(map[string]bool, len(list))
	for _, key := range list {
		decided[key] = true
	}
	var kept []models.Difference
	for _, d := range found {
		if !decided[d.RailKey] || !explicable(d) {
			kept = append(kept, d)
		}
	}
	return kept, nil
}
