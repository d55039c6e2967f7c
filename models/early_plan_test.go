package models_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// A plan made while the tables are empty must also suit a backlog: it finds single rows by primary
// key, lanes by outbox_waiting, tasks in flight of an organisation by outbox_lane_in_flight and
// those of a queue by outbox_in_flight. Only lists and quotas read the open payment intents, never
// a claim of one.
func TestEarlyPlansTakeTheRightIndexes(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	conn, err := store.DB().DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, query := range []string{"VACUUM ANALYZE outbox", "VACUUM ANALYZE webhook_slots"} {
		if _, err := conn.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	right := []string{
		"outbox_pkey", "outbox_waiting", "outbox_lane_in_flight", "outbox_in_flight", "queue_pauses_pkey",
		"webhook_events_pkey", "webhook_attempts_pkey", "webhook_endpoints_pkey", "webhook_slots_pkey",
		"webhook_slots_taken", "webhook_slots_parked", "webhook_slots_parked_of_site", "alerts_open_by_kind",
		"batches_open_deadline", "batches_pkey", "batch_rows_pkey", "sites_organisation", "payment_intents_pkey",
		"payment_intents_list_open", "link_totals_pkey", "link_changes_site",
	}
	// An index scan, or a bitmap scan, whose filter compares the organisation.
	ofQueue := regexp.MustCompile(`outbox_in_flight on .*\n.*Index Cond.*\n.*Filter:.*organisation_id =|` +
		`Filter:.*organisation_id =.*\n.*Bitmap Index Scan on outbox_in_flight`)
	index := regexp.MustCompile(`(?:Index (?:Only )?Scan(?: Backward)? using|Bitmap Index Scan on) (\w+)`)
	for _, statement := range models.EarlyPlanSQL {
		query := statement.Text()
		all := genericPlan(t, conn, statement, "COSTS")
		found := index.FindAllStringSubmatch(all, -1)
		for i, f := range found { // of a partition: that of the table
			var of string
			must(t, conn.QueryRowContext(t.Context(), `
SELECT coalesce((SELECT inhparent FROM pg_inherits WHERE inhrelid = $1::text::regclass)::regclass::text, $1)`,
				f[1]).Scan(&of))
			found[i][1] = of
		}
		if len(found) == 0 || strings.Contains(all, "Join Filter: ((w_1") {
			t.Errorf("no index, or all of it, in\n%s", all)
		} else if ofQueue.MatchString(all) {
			t.Errorf("an organisation's tasks are counted among all of the queue in\n%s", all)
		}
		for _, f := range found {
			claimsOne := strings.Contains(query, "FROM payment_intents") && strings.Contains(query, "FOR UPDATE")
			if !slices.Contains(right, f[1]) || claimsOne && f[1] == "payment_intents_list_open" {
				t.Errorf("%s in\n%s", f[1], all)
			}
		}
	}
}

// The planner inlines the functions that hold the rules of several statements.
func TestRulesAreInlined(t *testing.T) {
	t.Parallel()
	conn, err := modelstest.Open(t).DB().DB.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	call := regexp.MustCompile(`\b(?:debit_phase|batch_cancelled|batch_certain|transaction_phase|payment_rail_key|` +
		`link_\w+|webhook_breaker|webhook_endpoint_of)\(`)
	for _, statement := range models.RuleSQL {
		plan := genericPlan(t, conn, statement, "VERBOSE")
		if called := call.FindString(plan); called != "" {
			t.Errorf("%s is called in\n%s", called, plan)
		}
	}
}

// genericPlan returns the plan of a statement for any arguments.
func genericPlan(t *testing.T, conn *sql.Conn, statement postgres.Statement, options string) string {
	t.Helper()
	for _, text := range []string{
		"SET plan_cache_mode = force_generic_plan", "PREPARE planned AS " + statement.Text(),
	} {
		_, err := conn.ExecContext(t.Context(), text)
		must(t, err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(statement.Names())), ", ")
	rows, err := conn.QueryContext(t.Context(), fmt.Sprintf("EXPLAIN (%s) EXECUTE planned (%s)", options, nulls))
	must(t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		plan = append(plan, line)
	}
	must(t, rows.Err())
	_, err = conn.ExecContext(t.Context(), "DEALLOCATE planned")
	must(t, err)
	return strings.Join(plan, "\n")
}
