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
	table   string
	columns string // definitions, the state's first
	values  [][2]string
	allowed func(from, to [2]string) bool
}

func stateMachines() []stateMachine {
	machines := []stateMachine{{
		table: "customer_links", columns: "state link_state",
		allowed: func(from, to [2]string) bool {
			return models.LinkState(from[0]).CanBecome(models.LinkState(to[0]))
		},
	}, {
		table: "batches", columns: "state batch_state", values: [][2]string{{"inProgress"}, {"settled"}},
		allowed: func(from, _ [2]string) bool { return from[0] == string(models.BatchInProgress) },
	}, {
		table: "batch_rows", columns: "state row_state, outcome row_outcome",
		values: [][2]string{{string(models.RowPending)}, {string(models.RowInProgress)}},
		allowed: func(from, to [2]string) bool {
			return models.RowState(from[0]).CanBecome(models.RowState(to[0])) || from[0] == to[0] && from[1] == to[1]
		},
	}, {
		table: "payment_intents", columns: "state intent_state, transaction_status transaction_status",
		values: [][2]string{{string(models.IntentCreated)}, {string(models.IntentPending)}},
		allowed: func(from, to [2]string) bool {
			return models.IntentState(from[0]).CanBecome(models.IntentState(to[0])) ||
				from[0] == to[0] && from[1] == to[1]
		},
	}, {
		table: "webhook_events", columns: "status webhook_event_status",
		allowed: func(from, to [2]string) bool {
			return models.WebhookStatus(from[0]).CanBecome(models.WebhookStatus(to[0]))
		},
	}}
	for _, s := range models.LinkStates {
		machines[0].values = append(machines[0].values, [2]string{string(s)})
	}
	for _, o := range models.RowOutcomes {
		machines[2].values = append(machines[2].values, [2]string{string(models.RowSettled), string(o)})
	}
	for _, s := range models.TransactionStatuses {
		machines[3].values = append(machines[3].values, [2]string{string(models.IntentFinal), string(s)})
	}
	for _, s := range models.WebhookStatuses {
		machines[4].values = append(machines[4].values, [2]string{string(s)})
	}
	return machines
}

var triggerCondition = regexp.MustCompile(` WHEN \((.*)\) EXECUTE FUNCTION refuse_transition\(`)

// For every pair of states, the condition of a table's trigger is true unless the state machine
// allows the transition.
func TestDatabaseRefusesTransitions(t *testing.T) {
	t.Parallel()
	db := modelstest.Open(t).DB()
	for _, m := range stateMachines() {
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
				if want := from != to && !m.allowed(from, to); refused != want {
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
