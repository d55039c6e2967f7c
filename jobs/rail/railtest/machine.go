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

// model is a minimal model of a rail's records: one record per key.
type model map[string]record

// record is the record of one key.
type record struct {
	debit  rail.Debit // zero if the key was cancelled before any debit arrived
	result rail.Result
}

// held returns the record as Lookup and Cancel report it, with the particulars of the key.
func (r record) held() rail.Result { return held(r.debit, r.result) }

// machineAgreements are the agreements that testMachine debits, named after the behaviours of their
// accounts. "pays" occurs twice, so that it is drawn more often. The last one has no account. The
// answers do not depend on time, as long as the rail's clock advances by less than
// models.SandboxBankDownFor during the test.
var machineAgreements = []models.Behaviour{
	models.BehaviourPays, models.BehaviourPays, models.BehaviourInsufficientFunds, models.BehaviourDeclines,
	models.BehaviourAnswerLost, models.BehaviourBankDown, "noSuchAgreement",
}

// debit records a debit in the model and returns the answer that a rail must give.
func (m model) debit(d rail.Debit) rail.Result {
	if d.Amount < 1 {
		return invalid
	}
	if r, seen := m[d.Key]; seen {
		if r.debit != (rail.Debit{}) && r.debit != d {
			return conflict
		}
		return r.result
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
	m[d.Key] = record{d, recorded}
	return answer
}

func (m model) lookup(key string) rail.Result {
	if r, seen := m[key]; seen {
		return r.held()
	}
	return notFound
}

func (m model) cancel(key string) rail.Result {
	if _, seen := m[key]; !seen {
		m[key] = record{result: cancelled}
	}
	return m[key].held()
}

// testMachine makes random calls with random keys, some of them concurrently. It compares every
// answer with the model. It is a test of the conformance suite.
func testMachine(t *testing.T, f Fixture) {
	f.open(t, slices.Compact(slices.Clone(machineAgreements[:len(machineAgreements)-1]))...)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{fixture: f, model: make(model)}
		for run, i := runs.Add(1), 0; i < 6; i++ {
			m.keys = append(m.keys, fmt.Sprintf("run %d/key %d", run, i))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"debit":                           m.debit,
			"lookup":                          m.lookup,
			"cancel":                          m.cancel,
			"race a debit and a cancellation": m.raceCancel,
			"race two debits":                 m.raceDebit,
		})
		m.check(rt)
	})
}

// machine makes random calls on the rail of a fixture and the same calls on the model.
type machine struct {
	fixture Fixture
	model   model
	keys    []string
}

func (m *machine) drawKeys(rt *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(m.keys), 1, len(m.keys), rapid.ID[string]).Draw(rt, "keys")
}

func (m *machine) drawDebit(rt *rapid.T, key string) rail.Debit {
	d := debit(key, string(rapid.SampledFrom(machineAgreements).Draw(rt, "agreement")))
	d.Amount = rapid.SampledFrom([]models.Amount{100, 100, 100, 100, 200, 0}).Draw(rt, "amount")
	d.Currency = rapid.SampledFrom([]string{"AUD", "AUD", "AUD", "NZD"}).Draw(rt, "currency")
	return d
}

func (m *machine) debit(rt *rapid.T) {
	var debits []rail.Debit
	var wanted []rail.Result
	for _, key := range m.drawKeys(rt) {
		d := m.drawDebit(rt, key)
		debits, wanted = append(debits, d), append(wanted, m.model.debit(d))
	}
	want(rt, "debit", Debit(rt.Context(), rt, m.fixture.Rail, debits...), wanted...)
}

func (m *machine) lookup(rt *rapid.T) {
	keys := m.drawKeys(rt)
	var wanted []rail.Result
	for _, key := range keys {
		wanted = append(wanted, m.model.lookup(key))
	}
	want(rt, "lookup", Lookup(rt.Context(), rt, m.fixture.Rail, keys...), wanted...)
}

func (m *machine) cancel(rt *rapid.T) {
	keys := m.drawKeys(rt)
	var wanted []rail.Result
	for _, key := range keys {
		wanted = append(wanted, m.model.cancel(key))
	}
	want(rt, "cancel", Cancel(rt.Context(), rt, m.fixture.Rail, keys...), wanted...)
}

// raceCancel debits and cancels a key at once. The results must be those of one of the two orders.
func (m *machine) raceCancel(rt *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(rt, "key")
	d := m.drawDebit(rt, key)
	var byDebit, byCancel rail.Result
	concurrently(2, func(n int) {
		if n == 0 {
			byDebit = Debit(rt.Context(), rt, m.fixture.Rail, d)[0]
		} else {
			byCancel = Cancel(rt.Context(), rt, m.fixture.Rail, key)[0]
		}
	})
	// The cancellation came first: an earlier valid debit would have been recorded, or Unavailable.
	// For an invalid one the order makes no difference.
	if byCancel.Status == rail.Cancelled && m.model.lookup(key) == notFound && byDebit.Status != rail.Unavailable {
		m.model.cancel(key)
	}
	want(rt, "debit in a race", []rail.Result{byDebit}, m.model.debit(d))
	want(rt, "cancellation in a race", []rail.Result{byCancel}, m.model.cancel(key))
}

// raceDebit debits a key twice at once, mostly with different particulars. The results must be
// those of one of the two orders.
func (m *machine) raceDebit(rt *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(rt, "key")
	debits := [2]rail.Debit{m.drawDebit(rt, key), m.drawDebit(rt, key)}
	var got [2]rail.Result
	concurrently(2, func(n int) { got[n] = Debit(rt.Context(), rt, m.fixture.Rail, debits[n])[0] })
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

// check compares the amounts in the rail's own records with the model.
func (m *machine) check(rt *rapid.T) {
	debited := m.fixture.Debited(rt)
	for _, key := range m.keys {
		var wanted models.Amount
		if r := m.model[key]; r.result == succeeded {
			wanted = r.debit.Amount
		}
		if debited[key] != wanted {
			rt.Errorf("the rail has debited %d under %q, want %d", debited[key], key, wanted)
		}
	}
}
