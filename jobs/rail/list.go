package rail

import (
	"errors"
	"fmt"

	"partnerbilling/models"
)

// MaxListed is the maximum number of debits on a page of the list.
const MaxListed = 500

// ListQuery selects a page of the list of successful debits: those with From <= DebitedAt < To, in
// the order of DebitedAt and then of the key's bytes.
type ListQuery struct {
	From models.Millis
	// AfterKey leaves out debits at exactly From with keys up to and including AfterKey. "" leaves
	// out none.
	AfterKey string
	To       models.Millis
	Limit    int // 1 to MaxListed
}

// Validate returns an error if no rail can answer the query. An empty range is valid.
func (q ListQuery) Validate() error {
	switch {
	case q.Limit < 1 || q.Limit > MaxListed:
		return errors.New("rail: limit out of range")
	case q.From < 0 || q.To < 0 || q.From > maxTime || q.To > maxTime:
		return errors.New("rail: time out of range")
	case q.AfterKey != "":
		return ValidateKey(q.AfterKey)
	}
	return nil
}

// maxTime is the latest time in a message. Every JSON reader holds its milliseconds exactly.
const maxTime = models.Millis(models.MaxAmount)

// After returns the query for the debits that follow d in the list.
func (q ListQuery) After(d ListedDebit) ListQuery {
	q.From, q.AfterKey = d.DebitedAt, d.Key
	return q
}

// Selects reports whether d is one of the debits that the query asks for, apart from the limit.
func (q ListQuery) Selects(d ListedDebit) bool {
	after := d.DebitedAt > q.From || d.DebitedAt == q.From && d.Key > q.AfterKey
	return after && d.DebitedAt < q.To
}

// ListedDebit is a successful debit in a rail's list.
type ListedDebit struct {
	Key string
	Particulars
	// DebitedAt is the time of the debit by the rail's clock.
	DebitedAt models.Millis
}

// ListPage is a page of the list of debits. A rail lists only debits before CompleteTo. It may
// still list debits before CompleteFrom. The part of the list from CompleteFrom up to, but not
// including, CompleteTo never changes: no debit joins or leaves it. A reader that follows the pages
// therefore sees each debit of that part exactly once, whatever is debited meanwhile.
type ListPage struct {
	Debits []ListedDebit
	// More says that further debits follow the last one of this page.
	More bool
	// CompleteFrom is the beginning of the rail's memory: the rail may have dropped earlier debits.
	CompleteFrom models.Millis
	// CompleteTo is the watermark: a debit with this time or a later one may still appear.
	CompleteTo models.Millis
}

// check returns an error if the page cannot be the answer to the query.
func (p ListPage) check(q ListQuery) error {
	switch {
	case len(p.Debits) > q.Limit:
		return errors.New("rail: the page has more debits than the limit")
	case p.More && len(p.Debits) == 0:
		return errors.New("rail: the page is empty, but more is to follow")
	}
	for i, d := range p.Debits {
		if err := ValidateKey(d.Key); err != nil {
			return fmt.Errorf("rail: listed debit %d: %w", i, err)
		}
		if err := d.Particulars.validate(); err != nil {
			return fmt.Errorf("rail: listed debit %d: %w", i, err)
		}
		if !q.Selects(d) || d.DebitedAt >= p.CompleteTo {
			return fmt.Errorf("rail: listed debit %d is out of order or out of range", i)
		}
		q = q.After(d)
	}
	return nil
}
