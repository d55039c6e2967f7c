package models_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/postgres/explain"
)

// insertIntents inserts payment intents in any states and at any times.
func insertIntents(t testing.TB, store *models.Store, intents []models.PaymentIntent) {
	for i := range intents {
		p := &intents[i]
		hasTransaction := p.State == models.IntentPending || p.Status.HasTransaction()
		_, err := store.DB().ExecContext(t.Context(), `
			INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, state, transaction_status, amount,
				currency, order_id,
				qr_code_format, created_at, expires_at, final_at, transaction_id, party,
					amount_charged, started_at)
			SELECT ?0, ?1, ?2, 1, ?3, ?4, nullif(?5, '')::transaction_status, 5, 'AUD', nullif(?6, ''), 'text', ?7, ?8,
				CASE WHEN ?4 = 'final' THEN ?7 END, t.id, t.party, t.n, t.n
			FROM (SELECT 1) one LEFT JOIN (SELECT ?9::uuid, 'x'::bytea, 1) AS t (id, party, n) ON ?10`,
			p.SiteID, p.ID, p.OrganisationID, p.Code, string(p.State), string(p.Status), p.OrderID, p.CreatedAt,
			p.ExpiresAt,
			p.Transaction.ID, hasTransaction)
		must(t, err)
	}
}

// anyIntents generates payment intents around noon, many at one instant, in any state, some past
// expiry.
func anyIntents(r *rapid.T, site models.Site) []models.PaymentIntent {
	intents := make([]models.PaymentIntent, rapid.IntRange(0, 14).Draw(r, "intents"))
	for i := range intents {
		p := &intents[i]
		*p = models.PaymentIntent{
			SiteID: site.ID, OrganisationID: site.OrganisationID, ID: models.PaymentIntentID(uuid.New()),
			Code: models.NewIntentCode(), OrderID: rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "order"),
			State:     rapid.SampledFrom(models.IntentStates).Draw(r, "state"),
			CreatedAt: noon + models.Millis(rapid.Int64Range(0, 3).Draw(r, "createdAt")),
			ExpiresAt: noon + models.Millis(rapid.Int64Range(4, 8).Draw(r, "expiresAt")),
		}
		if p.State == models.IntentFinal {
			p.Status = rapid.SampledFrom(models.TransactionStatuses).Draw(r, "status")
		}
		if p.State == models.IntentPending || p.Status.HasTransaction() {
			p.Transaction.ID = models.TransactionID(uuid.New())
		}
	}
	return intents
}

// intentSummary is the part of a listed intent that tests compare.
func intentSummary(p *models.PaymentIntent) string {
	return fmt.Sprint(p.ID, " ", p.State, " ", p.Status, " ", p.OrderID, " ", p.CreatedAt, " ", p.Transaction.ID)
}

// naiveIntentList is the reference implementation of the list.
func naiveIntentList(intents []models.PaymentIntent, q *models.IntentQuery, now models.Millis) []string {
	var matching []models.PaymentIntent
	for _, p := range intents {
		if p.State == models.IntentCreated && p.ExpiresAt <= now {
			p.State, p.Status = models.IntentFinal, models.TransactionExpired
		}
		if (q.State == "" || q.State == p.State) && (q.Status == "" || q.Status == p.Status) &&
			(q.OrderID == "" || q.OrderID == p.OrderID) &&
			(q.CreatedFrom == nil || p.CreatedAt >= *q.CreatedFrom) &&
			(q.CreatedTo == nil || p.CreatedAt <= *q.CreatedTo) {
			matching = append(matching, p)
		}
	}
	slices.SortFunc(matching, func(a, b models.PaymentIntent) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.ID.String(), a.ID.String()))
	})
	out := []string{}
	for i := range matching {
		out = append(out, intentSummary(&matching[i]))
	}
	return out
}

func TestListPaymentIntentsAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	rapid.Check(t, func(r *rapid.T) {
		site := modelstest.Site(t, store)
		now := noon + models.Millis(rapid.Int64Range(3, 9).Draw(r, "now"))
		modelstest.SetClock(t, store, now)
		intents := anyIntents(r, site)
		insertIntents(t, store, intents)
		bound := func(label string) *models.Millis {
			if !rapid.Bool().Draw(r, label+" given") {
				return nil
			}
			at := rapid.SampledFrom([]models.Millis{-1 << 63, -1, noon - 1, noon, noon + 1, noon + 2,
				noon + 3, noon + 4,
				1<<63 - 1}).Draw(r, label)
			return &at
		}
		q := models.IntentQuery{
			SiteID: site.ID, Limit: rapid.IntRange(1, 5).Draw(r, "limit"), Direction: models.Forward,
			OrderID: rapid.SampledFrom([]string{"", "a"}).Draw(r, "order"),
			State:   rapid.SampledFrom(append([]models.IntentState{""}, models.IntentStates...)).Draw(r, "state"),
			Status: rapid.SampledFrom(append([]models.TransactionStatus{""}, models.TransactionStatuses...)).Draw(r,
				"status"),
			CreatedFrom: bound("from"), CreatedTo: bound("to"),
		}
		checkIntentWalk(t, r, store, q, naiveIntentList(intents, &q, now), now)
	})
}

// checkIntentWalk reads every page forward, then every page backward.
func checkIntentWalk(
	t testing.TB, r *rapid.T, store *models.Store, q models.IntentQuery, want []string, now models.Millis,
) {
	read := func(start, end int) models.IntentPage {
		page, err := store.ListPaymentIntents(t.Context(), q)
		must(r, err)
		got := []string{}
		for i := range page.Items {
			got = append(got, intentSummary(&page.Items[i]))
		}
		if diff := gocmp.Diff(want[start:end], got); diff != "" {
			r.Fatalf("%s from %d: %s", q.Direction, start, diff)
		}
		if page.Now != now || (page.Prev != nil) != (start > 0) || (page.Next != nil) != (end < len(want)) {
			r.Fatalf("%s from %d of %d: %+v", q.Direction, start, len(want), page)
		}
		return page
	}
	start := 0
	page := read(0, min(q.Limit, len(want)))
	for page.Next != nil {
		start += q.Limit
		q.At = *page.Next
		page = read(start, min(start+q.Limit, len(want)))
	}
	for q.Direction = models.Backward; page.Prev != nil; {
		q.At = *page.Prev
		end := start
		start = max(end-q.Limit, 0)
		page = read(start, end)
	}
}

// A listed expiry is final: each such intent has its one event, and no payment can begin.
func TestListPaymentIntentsEndsWhatItShowsAsExpired(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	old := modelstest.Intent(t, store, site.ID, 5)
	modelstest.AdvanceClock(t, store, models.DefaultIntentLife)
	fresh := modelstest.Intent(t, store, site.ID, 5)
	page, err := store.ListPaymentIntents(t.Context(), models.IntentQuery{SiteID: site.ID, Direction: models.Forward,
		Limit: 10})
	must(t, err)
	if len(page.Items) != 2 || page.Items[0].State != models.IntentCreated ||
		page.Items[1].Status != models.TransactionExpired {
		t.Errorf("%+v", page)
	}
	if got := modelstest.PushedStatuses(t, store, old.ID); !slices.Equal(got,
		[]models.TransactionStatus{models.TransactionExpired}) {
		t.Errorf("events %v", got)
	}
	if got := modelstest.PushedStatuses(t, store, fresh.ID); len(got) != 0 {
		t.Errorf("events of the other %v", got)
	}
}

func TestListPaymentIntentsRefusesBadQueries(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	for _, q := range []models.IntentQuery{
		{Limit: 0}, {Limit: 101}, {Limit: 1, State: "Final"}, {Limit: 1, Status: "settled"}, {Limit: 1,
			Status: "x' OR true --"},
	} {
		if _, err := store.ListPaymentIntents(t.Context(), q); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
}

// While writers create and cancel, walks in both directions find every intent that matched
// throughout exactly once.
func TestListPaymentIntentsWhileWritersWrite(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, noon)
	steady := map[models.PaymentIntentID]bool{}
	for i := range 30 { // at 10 instants, three each
		if i%3 == 0 {
			modelstest.AdvanceClock(t, store, time.Millisecond)
		}
		steady[modelstest.Intent(t, store, site.ID, 5).ID] = true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 60 {
			in := models.NewPaymentIntent{SiteID: site.ID, Amount: 5, QRCodeFormat: models.QRCodeText}
			intent, _, err := store.CreatePaymentIntent(t.Context(), in, nil)
			if err == nil && i%2 == 0 {
				_, _, err = store.CancelPaymentIntent(t.Context(), site.ID, intent.ID)
			}
			if err != nil {
				t.Errorf("writer: %v", err)
				return
			}
		}
	}()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false // once more, with no writer left
		default:
		}
		for _, direction := range []models.Direction{models.Forward, models.Backward} {
			q := models.IntentQuery{SiteID: site.ID, State: models.IntentCreated, Limit: 7, Direction: direction}
			seen := map[models.PaymentIntentID]int{}
			for from := (&models.IntentPosition{}); from != nil; {
				q.At = *from
				page, err := store.ListPaymentIntents(t.Context(), q)
				must(t, err)
				for i := range page.Items {
					seen[page.Items[i].ID]++
				}
				if from = page.Next; direction == models.Backward {
					from = page.Prev
				}
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s: %v was seen %d times", direction, id, n)
				}
			}
			for id := range steady {
				if seen[id] != 1 {
					t.Errorf("%s: %v was seen %d times", direction, id, seen[id])
				}
			}
		}
	}
}

// With 100,000 intents in a Site, every page uses an ordered index. The rare states lie at the end
// of the list, behind all others.
func TestListPaymentIntentsReadsLittle(t *testing.T) {
	t.Parallel()
	// Inserting so many rows takes longer than the service's statement timeout.
	store, err := models.Open(postgres.Config{DSN: modelstest.DSN(t), StatementTimeout: 5 * time.Minute})
	must(t, err)
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { must(t, store.Close()) })
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	const intents, most = 100_000, 200 // of about 10,000 blocks
	_, err = store.DB().ExecContext(t.Context(), `
		INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, state, transaction_status, amount,
			currency, order_id,
			qr_code_format, created_at, expires_at, final_at, transaction_id, party,
				amount_charged, started_at)
		SELECT ?0, gen_random_uuid(), ?1, 1, 'code ' || i, s.state, s.status, 5, 'AUD', 'order ' || i / 10, 'text',
			?2 - i * 1000::bigint,
			CASE WHEN s.state = 'created' AND i % 500 > 0 THEN ?2 + 60000 ELSE ?2 - 1 END, CASE WHEN s.state = 'final'
				THEN ?2 END, t.id, t.party, t.n, t.n
		FROM generate_series(1, ?3) AS i
		CROSS JOIN LATERAL (SELECT CASE WHEN i < 50000 THEN 'created' WHEN i % 1000 = 1 THEN 'pending'
			ELSE 'final' END::intent_state,
			CASE WHEN i < 50000 OR i % 1000 = 1 THEN NULL WHEN i % 1000 = 0 THEN 'Failed' WHEN i % 3 = 0
				THEN 'Expired' ELSE 'Settled'
			END::transaction_status) AS s (state, status)
		LEFT JOIN LATERAL (SELECT gen_random_uuid(), 'x'::bytea, 1) AS t (id, party, n) ON s.state = 'pending'
			OR s.status IN ('Failed', 'Settled')`,
		site.ID, site.OrganisationID, noon, intents)
	must(t, err)
	modelstest.Vacuum(t, store, "payment_intents")
	from, to, middle := noon-intents*800, noon-intents*200, noon-intents*500
	for _, state := range append([]models.IntentState{""}, models.IntentStates...) {
		for _, status := range append([]models.TransactionStatus{""}, models.TransactionStatuses...) {
			for _, order := range []string{"", "order 7000"} {
				for _, q := range []models.IntentQuery{{}, {CreatedFrom: &from}, {CreatedTo: &to},
					{CreatedFrom: &from, CreatedTo: &to}} {
					q.SiteID, q.State, q.Status, q.OrderID, q.Limit, q.Direction = site.ID, state, status, order, 50,
						models.Forward
					inside, last := q, q
					inside.At.At = middle
					last.Direction = models.Backward
					for _, q := range []models.IntentQuery{q, inside, last} {
						list, args := models.IntentListStatement(q)
						plan, err := explain.Run(t.Context(), store.DB().DB, list, args)
						must(t, err)
						if tables := sequential(plan); len(tables) > 0 || plan.Blocks() > most {
							t.Errorf("%+v: reads %d blocks, all of %q\n%s", q, plan.Blocks(), tables, plan.JSON)
							return
						}
					}
				}
			}
		}
	}
}
