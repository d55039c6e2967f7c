package models_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// stateMachine is a state machine of the database. Its values are pairs: a state, and the result
// that a final state has, or "".
type stateMachine struct {
	table     string
	columns   string // definitions, the state's first
	values    [][2]string
	canBecome func(from, to string) bool // states
}

var stateMachines = []stateMachine{
	{"customer_links", "state link_state", states(models.LinkStates...), canBecome(models.LinkState.CanBecome)},
	{
		"batches", "state batch_state", states(models.BatchInProgress, models.BatchSettled),
		func(from, _ string) bool { return from == string(models.BatchInProgress) },
	},
	{
		"batch_rows", "state row_state, outcome row_outcome",
		append(states(models.RowPending, models.RowInProgress), results(models.RowSettled, models.RowOutcomes)...),
		canBecome(models.RowState.CanBecome),
	},
	{
		"payment_intents", "state intent_state, transaction_status transaction_status",
		append(states(models.IntentCreated, models.IntentPending),
			results(models.IntentFinal, models.TransactionStatuses)...),
		canBecome(models.IntentState.CanBecome),
	},
	{
		"webhook_events", "status webhook_event_status", states(models.WebhookStatuses...),
		canBecome(models.WebhookStatus.CanBecome),
	},
}

// states returns the values of states without a result.
func states[S ~string](all ...S) (values [][2]string) {
	for _, s := range all {
		values = append(values, [2]string{string(s)})
	}
	return values
}

// results returns the values of a final state.
func results[S, R ~string](final S, all []R) (values [][2]string) {
	for _, r := range all {
		values = append(values, [2]string{string(final), string(r)})
	}
	return values
}

func canBecome[S ~string](may func(from, to S) bool) func(from, to string) bool {
	return func(from, to string) bool { return may(S(from), S(to)) }
}

var triggerCondition = regexp.MustCompile(` WHEN \((.*)\) EXECUTE FUNCTION refuse_transition\(`)

// For every pair of states, the condition of a table's trigger is true unless the state machine
// allows the transition.
func TestDatabaseRefusesTransitions(t *testing.T) {
	t.Parallel()
	db := modelstest.Open(t).DB()
	for _, m := range stateMachines {
		var definition string
		must(t, db.NewRaw("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = ?::regclass AND tgname = ?",
			m.table, m.table+"_transitions").Scan(t.Context(), &definition))
		condition := triggerCondition.FindStringSubmatch(definition)
		if condition == nil {
			t.Fatalf("%s: no condition in %s", m.table, definition)
		}
		for _, from := range m.values {
			for _, to := range m.values {
				var refused bool
				query := fmt.Sprintf(`
SELECT coalesce(%s, false) FROM jsonb_to_record(?) AS old (%s), jsonb_to_record(?) AS new (%s)`,
					condition[1], m.columns, m.columns)
				must(t, db.NewRaw(query, m.record(from), m.record(to)).Scan(t.Context(), &refused))
				if want := from != to && !m.canBecome(from[0], to[0]); refused != want {
					t.Errorf("%s: %v to %v is refused: %t", m.table, from, to, refused)
				}
			}
		}
	}
}

// record returns a value as a JSON object of the columns.
func (m stateMachine) record(value [2]string) string {
	var fields []string
	for i, column := range strings.Split(m.columns, ", ") {
		name, _, _ := strings.Cut(column, " ")
		if value[i] != "" {
			fields = append(fields, fmt.Sprintf("%q: %q", name, value[i]))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// The triggers of all tables refuse statements that change a final state.
func TestFinalStatesStay(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Invite(t, store, site.ID, "ada")
	_, err := store.RevokeCustomer(t.Context(), site.ID, "ada")
	must(t, err)
	modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	_, _, err = store.CancelBatch(t.Context(), site.ID, "b")
	must(t, err)
	intent := modelstest.Intent(t, store, site.ID, 500)
	_, _, err = store.CancelPaymentIntent(t.Context(), site.ID, intent.ID) // its event is undelivered
	must(t, err)
	for _, tt := range []struct{ table, change string }{
		{"customer_links", "state = 'expired'"},
		{"batches", "state = 'inProgress', settled_at = NULL, settled_count = 0"},
		{"batch_rows", "outcome = 'declined'"},
		{"batch_rows", "state = 'pending', outcome = NULL, settled_at = NULL"},
		{"payment_intents", "transaction_status = 'Expired'"},
		{"webhook_events", "status = 'delivered'"},
	} {
		_, err := store.DB().ExecContext(t.Context(), "UPDATE "+tt.table+" SET "+tt.change)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "23514" || refused.ConstraintName != tt.table+"_transitions" {
			t.Errorf("%s: %s: %v", tt.table, tt.change, err)
		}
	}
}
