package rail

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Fault sets how often one kind of fault happens: to each of the next Count requests, and to every
// later request with Probability. The zero Fault never happens.
type Fault struct {
	Count       int     `json:"count,omitzero"`
	Probability float64 `json:"probability,omitzero"` // 0 to 1
}

// Faults configures the faults that Server, the simulated gateway, injects. The zero Faults injects
// none. If several are drawn for one request, Delay happens first, and then the first of the others
// in the order of the fields. The rest do not happen, but use up their Count.
type Faults struct {
	// Seed makes the faults repeatable for the same order of requests. Server.SetFaults restarts
	// the random numbers.
	Seed uint64 `json:"seed,omitzero"`
	// Only lists the operations with faults: "debit", "lookup", "cancel", "list"; all if empty.
	Only []string `json:"only,omitzero"`

	// Delay waits DelayMillis before anything else.
	Delay Fault `json:"delay,omitzero"`

	// These faults skip the operation.
	LoseRequest Fault `json:"loseRequest,omitzero"` // close the connection
	Unavailable Fault `json:"unavailable,omitzero"` // answer 503 bankUnavailable

	// These faults carry out the operation first.
	Hang         Fault `json:"hang,omitzero"`         // wait HangMillis, close the connection
	LoseAnswer   Fault `json:"loseAnswer,omitzero"`   // close the connection
	CutAnswer    Fault `json:"cutAnswer,omitzero"`    // close the connection within the answer
	Garbage      Fault `json:"garbage,omitzero"`      // answer 200 with bytes that are not JSON
	InternalFail Fault `json:"internalFail,omitzero"` // answer 500

	DelayMillis int64 `json:"delayMillis,omitzero"` // default 1000, at most an hour
	HangMillis  int64 `json:"hangMillis,omitzero"`  // default 60000, at most an hour
}

// check returns an error if a value is out of range.
func (f Faults) check() error {
	for _, fault := range []Fault{
		f.Delay, f.LoseRequest, f.Unavailable, f.Hang, f.LoseAnswer, f.CutAnswer, f.Garbage, f.InternalFail,
	} {
		if fault.Count < 0 || !(fault.Probability >= 0 && fault.Probability <= 1) {
			return errors.New("a count is negative, or a probability not between 0 and 1")
		}
	}
	for _, op := range f.Only {
		if !slices.Contains([]operation{opDebit, opLookup, opCancel, opList}, operation(op)) {
			return errors.New("only names an unknown operation")
		}
	}
	const maxMillis = int64(time.Hour / time.Millisecond)
	if f.DelayMillis < 0 || f.DelayMillis > maxMillis || f.HangMillis < 0 || f.HangMillis > maxMillis {
		return errors.New("a time is negative or above an hour")
	}
	return nil
}

// drawnFaults are the faults that happen to one request.
type drawnFaults struct {
	delay, hang                                                            time.Duration
	loseRequest, unavailable, loseAnswer, cutAnswer, garbage, internalFail bool
}

// faultInjector draws the faults of each request. It is safe for concurrent use.
type faultInjector struct {
	mu     sync.Mutex
	faults Faults
	random *rand.Rand
}

func (i *faultInjector) set(f Faults) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults = f
	i.random = rand.New(rand.NewPCG(f.Seed, 0)) //nolint:gosec // repeatable on purpose
}

func (i *faultInjector) get() Faults {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.faults
}

// draw returns the faults of the next request for the operation.
func (i *faultInjector) draw(op operation) drawnFaults {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := &i.faults
	if len(f.Only) > 0 && !slices.Contains(f.Only, string(op)) {
		return drawnFaults{}
	}
	var drawn drawnFaults
	if i.happens(&f.Delay) {
		drawn.delay = orDefault(f.DelayMillis, time.Second)
	}
	drawn.loseRequest = i.happens(&f.LoseRequest)
	drawn.unavailable = i.happens(&f.Unavailable)
	if i.happens(&f.Hang) {
		drawn.hang = orDefault(f.HangMillis, time.Minute)
	}
	drawn.loseAnswer = i.happens(&f.LoseAnswer)
	drawn.cutAnswer = i.happens(&f.CutAnswer)
	drawn.garbage = i.happens(&f.Garbage)
	drawn.internalFail = i.happens(&f.InternalFail)
	return drawn
}

// happens reports whether a fault happens to the next request. It uses up one of Count, or else
// draws with Probability.
func (i *faultInjector) happens(f *Fault) bool {
	if f.Count > 0 {
		f.Count--
		return true
	}
	return f.Probability > 0 && i.random.Float64() < f.Probability
}

func orDefault(millis int64, fallback time.Duration) time.Duration {
	if millis > 0 {
		return time.Duration(millis) * time.Millisecond
	}
	return fallback
}
