package railtest

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// ledger is what a rail must have on record, as small as can be: one entry a key.
type ledger map[string]entry

type entry struct {
	debit  rail.Debit // zero if the key was cancelled before any debit
	result rail.Result
}

// held is the result with what the key holds.
func (e entry) held() rail.Result { return held(e.debit, e.result) }

// machineAgreements are the accounts of the machine; what they answer does not depend on time.
var machineAgreements = []models.Behaviour{
	models.BehaviourPays, models.BehaviourPays, models.BehaviourInsufficientFunds, models.BehaviourDeclines,
	models.BehaviourAnswerLost, models.BehaviourBankDown, "noSuchAgreement",
}

// debit is what a rail answers to a debit, and records.
func (l ledger) debit(d rail.Debit) rail.Result {
	if d.Amount < 1 {
		return invalid
	}
	if e, seen := l[d.Key]; seen {
		if e.debit != (rail.Debit{}) && e.debit != d {
			return conflict
		}
		return e.result
	}
	answer, recorded := succeeded, succeeded
	switch models.Behaviour(d.AgreementID) {
	case models.BehaviourPays:
	case models.BehaviourAnswerLost:
		answer = unknown
	case models.BehaviourBankDown:
		return unavailable
	case models.BehaviourInsufficientFunds:
		answer, recorded = refused(rail.InsufficientFunds), refused(rail.InsufficientFunds)
	case models.BehaviourDeclines:
		answer, recorded = refused(rail.DeclinedByCustomer), refused(rail.DeclinedByCustomer)
	default:
		answer, recorded = refused(rail.AccountUnavailable), refused(rail.AccountUnavailable)
	}
	l[d.Key] = entry{d, recorded}
	return answer
}

func (l ledger) lookup(key string) rail.Result {
	if e, seen := l[key]; seen {
		return e.held()
	}
	return notFound
}

func (l ledger) cancel(key string) rail.Result {
	if _, seen := l[key]; !seen {
		l[key] = entry{result: cancelled}
	}
	return l[key].held()
}

// testMachine does random things to random keys, some of them at once, and compares every answer with the model's.
func testMachine(t *testing.T, f Fixture) {
	f.open(t, slices.Compact(slices.Clone(machineAgreements[:len(machineAgreements)-1]))...)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{fixture: f, model: make(ledger)}
		for run, i := runs.Add(1), 0; i < 6; i++ {
			m.keys = append(m.keys, fmt.Sprintf("run %d/key %d", run, i))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"debit":  m.debit,
			"lookup": m.lookup,
			"cancel": m.cancel,
			"race":   m.race,
			"duel":   m.duel,
		})
		m.check(rt)
	})
}

type machine struct {
	fixture Fixture
	model   ledger
	keys    []string
}

func (m *machine) someKeys(rt *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(m.keys), 1, len(m.keys), rapid.ID[string]).Draw(rt, "keys")
}

func (m *machine) someDebit(rt *rapid.T, key string) rail.Debit {
	d := debit(key, string(rapid.SampledFrom(machineAgreements).Draw(rt, "agreement")))
	d.Amount = rapid.SampledFrom([]models.Amount{100, 100, 100, 100, 200, 0}).Draw(rt, "amount")
	d.Currency = rapid.SampledFrom([]string{"AUD", "AUD", "AUD", "NZD"}).Draw(rt, "currency")
	return d
}

func (m *machine) debit(rt *rapid.T) {
	var debits []rail.Debit
	var wanted []rail.Result
	for _, key := range m.someKeys(rt) {
		d := m.someDebit(rt, key)
		debits, wanted = append(debits, d), append(wanted, m.model.debit(d))
	}
	want(rt, "debit", Debit(rt.Context(), rt, m.fixture.Rail, debits...), wanted...)
}

func (m *machine) lookup(rt *rapid.T) {
	keys := m.someKeys(rt)
	var wanted []rail.Result
	for _, key := range keys {
		wanted = append(wanted, m.model.lookup(key))
	}
	want(rt, "lookup", Lookup(rt.Context(), rt, m.fixture.Rail, keys...), wanted...)
}

func (m *machine) cancel(rt *rapid.T) {
	keys := m.someKeys(rt)
	var wanted []rail.Result
	for _, key := range keys {
		wanted = append(wanted, m.model.cancel(key))
	}
	want(rt, "cancel", Cancel(rt.Context(), rt, m.fixture.Rail, keys...), wanted...)
}

// race debits and cancels one key at once; what follows must be what follows one of the two orders.
func (m *machine) race(rt *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(rt, "key")
	d := m.someDebit(rt, key)
	var byDebit, byCancel rail.Result
	together(2, func(n int) {
		if n == 0 {
			byDebit = Debit(rt.Context(), rt, m.fixture.Rail, d)[0]
		} else {
			byCancel = Cancel(rt.Context(), rt, m.fixture.Rail, key)[0]
		}
	})
	if byCancel.Status == rail.Cancelled && m.model.lookup(key) == notFound && byDebit.Status != rail.Unavailable {
		m.model.cancel(key)
	}
	want(rt, "debit in a race", []rail.Result{byDebit}, m.model.debit(d))
	want(rt, "cancellation in a race", []rail.Result{byCancel}, m.model.cancel(key))
}

// duel debits one key twice at once, mostly with different particulars; the results must be those of one of the two orders.
func (m *machine) duel(rt *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(rt, "key")
	debits := [2]rail.Debit{m.someDebit(rt, key), m.someDebit(rt, key)}
	var got [2]rail.Result
	together(2, func(n int) { got[n] = Debit(rt.Context(), rt, m.fixture.Rail, debits[n])[0] })
	for first := range debits {
		after := maps.Clone(m.model)
		one, other := after.debit(debits[first]), after.debit(debits[1-first])
		if same(one, got[first]) && same(other, got[1-first]) {
			m.model = after
			return
		}
	}
	rt.Errorf("debits %+v at once are reported as %+v", debits, got)
}

// check compares the rail's own list with the model: what was taken, and nothing else.
func (m *machine) check(rt *rapid.T) {
	debited := m.fixture.Debited(rt)
	for _, key := range m.keys {
		var wanted models.Amount
		if e := m.model[key]; e.result == succeeded {
			wanted = e.debit.Amount
		}
		if debited[key] != wanted {
			rt.Errorf("the rail has taken %d under %q, want %d", debited[key], key, wanted)
		}
	}
}
