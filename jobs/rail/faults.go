package rail

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Fault says how often one kind of fault happens: to the next Count requests, and to each after those with Probability.
type Fault struct {
	Count       int     `json:"count,omitzero"`
	Probability float64 `json:"probability,omitzero"` // 0 to 1
}

// Faults are what a Server does wrong on purpose. The zero Faults do nothing. Several may befall one request; they
// are listed in the order in which they strike.
type Faults struct {
	// Seed makes the draws repeatable, as far as the order of the requests is. Setting Faults starts it afresh.
	Seed uint64 `json:"seed,omitzero"`
	// Only are the operations that suffer: "debit", "lookup", "cancel"; all if empty.
	Only []string `json:"only,omitzero"`

	Delay        Fault `json:"delay,omitzero"`        // wait DelayMillis before anything else
	LoseRequest  Fault `json:"loseRequest,omitzero"`  // close the connection, do nothing
	Unavailable  Fault `json:"unavailable,omitzero"`  // 503 bankUnavailable, do nothing
	Hang         Fault `json:"hang,omitzero"`         // do it, then say nothing for HangMillis, then close the connection
	LoseAnswer   Fault `json:"loseAnswer,omitzero"`   // do it, then close the connection
	CutAnswer    Fault `json:"cutAnswer,omitzero"`    // do it, then close the connection in the middle of the answer
	Garbage      Fault `json:"garbage,omitzero"`      // do it, then answer 200 with bytes that are no JSON
	InternalFail Fault `json:"internalFail,omitzero"` // do it, then answer 500

	DelayMillis int64 `json:"delayMillis,omitzero"` // default 1000
	HangMillis  int64 `json:"hangMillis,omitzero"`  // default 60000
}

// check finds what would make no sense.
func (f Faults) check() error {
	for _, one := range []Fault{
		f.Delay, f.LoseRequest, f.Unavailable, f.Hang, f.LoseAnswer, f.CutAnswer, f.Garbage, f.InternalFail,
	} {
		if one.Count < 0 || !(one.Probability >= 0 && one.Probability <= 1) {
			return errors.New("a count is negative, or a probability not between 0 and 1")
		}
	}
	for _, op := range f.Only {
		if !slices.Contains([]operation{opDebit, opLookup, opCancel}, operation(op)) {
			return errors.New("only names an unknown operation")
		}
	}
	const longest = int64(time.Hour / time.Millisecond)
	if f.DelayMillis < 0 || f.DelayMillis > longest || f.HangMillis < 0 || f.HangMillis > longest {
		return errors.New("a time is negative or above an hour")
	}
	return nil
}

// fate is what befalls one request.
type fate struct {
	delay, hang                                                          time.Duration
	loseRequest, unavailable, loseAnswer, cutAnswer, garbage, failInside bool
}

// faultDice draws the fate of each request.
type faultDice struct {
	mu     sync.Mutex
	faults Faults
	random *rand.Rand
}

func (d *faultDice) set(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
	d.random = rand.New(rand.NewPCG(f.Seed, 0)) //nolint:gosec // repeatable on purpose
}

func (d *faultDice) get() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

func (d *faultDice) draw(op operation) fate {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &d.faults
	if len(f.Only) > 0 && !slices.Contains(f.Only, string(op)) {
		return fate{}
	}
	var drawn fate
	if d.happens(&f.Delay) {
		drawn.delay = orDefault(f.DelayMillis, time.Second)
	}
	drawn.loseRequest = d.happens(&f.LoseRequest)
	drawn.unavailable = d.happens(&f.Unavailable)
	if d.happens(&f.Hang) {
		drawn.hang = orDefault(f.HangMillis, time.Minute)
	}
	drawn.loseAnswer = d.happens(&f.LoseAnswer)
	drawn.cutAnswer = d.happens(&f.CutAnswer)
	drawn.garbage = d.happens(&f.Garbage)
	drawn.failInside = d.happens(&f.InternalFail)
	return drawn
}

// happens uses up a count, or else throws the dice.
func (d *faultDice) happens(f *Fault) bool {
	if f.Count > 0 {
		f.Count--
		return true
	}
	return f.Probability > 0 && d.random.Float64() < f.Probability
}

func orDefault(millis int64, d time.Duration) time.Duration {
	if millis > 0 {
		return time.Duration(millis) * time.Millisecond
	}
	return d
}
