package models_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// traced is a store with two organisations; the first has three Sites.
type traced struct {
	*models.Store
	site, sister, other models.Site
}

func newTraced(t *testing.T) *traced {
	t.Parallel()
	f := &traced{Store: openConfig(t, postgres.Config{
		DSN: modelstest.DSN(t), StatementTimeout: 5 * time.Minute, // for large fixtures
	})}
	modelstest.SetClock(t, f.Store, noon)
	f.site, f.other = modelstest.Site(t, f.Store), modelstest.Site(t, f.Store)
	for range 2 {
		var err error
		f.sister, err = f.CreateSite(t.Context(), f.site.OrganisationID, "Sister")
		must(t, err)
	}
	return f
}

// makers store something at a Site under the context's trace id, and return its id.
func (f *traced) makers(t *testing.T) map[models.TraceKind]func(context.Context, models.Site) [16]byte {
	n := 0
	return map[models.TraceKind]func(context.Context, models.Site) [16]byte{
		models.TraceBatch: func(ctx context.Context, site models.Site) [16]byte {
			n++
			batch := modelstest.Batch(site, fmt.Sprint("batch ", n), "ada", "bob")
			batch.TraceID = models.TraceIDFrom(ctx)
			return modelstest.Submit(t, f.Store, batch).Batch.ID
		},
		models.TracePaymentIntent: func(ctx context.Context, site models.Site) [16]byte {
			in := models.NewPaymentIntent{SiteID: site.ID, Amount: 1, QRCodeFormat: models.QRCodeText}
			intent, _, err := f.CreatePaymentIntent(ctx, in, nil)
			must(t, err)
			return intent.ID
		},
		models.TraceInvitation: func(ctx context.Context, site models.Site) [16]byte {
			n++
			in := models.NewInvitation{SiteID: site.ID, CustomerReference: fmt.Sprint("customer ", n)}
			link, _, err := f.CreateInvitation(ctx, in, nil)
			must(t, err)
			return link.ID
		},
	}
}

// A trace finds what its request stored, on any Site of the organisation. Other organisations do
// not find it.
func TestTraceFindsWhatWasStored(t *testing.T) {
	f := newTraced(t)
	for kind, store := range f.makers(t) {
		for _, site := range []models.Site{f.site, f.sister, f.other} {
			id, neighbour := models.NewTraceID(), models.NewTraceID()
			ctx := models.WithTraceID(t.Context(), id)
			made := store(ctx, site)
			store(models.WithTraceID(ctx, neighbour), site)
			// Another process may make the same first half at the same moment, also on the same
			// Site.
			twin := id[:16] + models.NewTraceID()[16:]
			store(models.WithTraceID(ctx, twin), site)

			if got := hex.EncodeToString(made[:8]); got != string(id[:16]) {
				t.Errorf("%s: the id begins with %s, the trace %s", kind, got, id)
			}
			for _, of := range []models.TraceID{id, neighbour, twin} {
				trace, err := f.Trace(t.Context(), site.OrganisationID, of)
				must(t, err)
				if trace.Kind != kind || trace.ID != of || trace.At != noon || of == id && subjectOf(&trace) != made {
					t.Errorf("%s on %s: %+v", kind, site.ID, trace)
				}
			}
			stranger := f.other
			if site == f.other {
				stranger = f.site
			}
			if trace, err := f.Trace(t.Context(), stranger.OrganisationID, id); !errors.Is(err, models.ErrNotFound) {
				t.Errorf("%s: a stranger sees %+v, %v", kind, trace, err)
			}
		}
	}
}

func subjectOf(trace *models.Trace) [16]byte {
	switch {
	case trace.Batch != nil:
		return trace.Batch.ID
	case trace.Intent != nil:
		return trace.Intent.ID
	case trace.Link != nil:
		return trace.Link.ID
	}
	return [16]byte{}
}

// Without a trace id, or with another form of it, ids are plain UUIDv7s, and no trace finds them.
func TestTraceOfAnotherForm(t *testing.T) {
	f := newTraced(t)
	for kind, store := range f.makers(t) {
		for _, id := range []models.TraceID{"", "trace", "0123456789abcdef0123456789abcdef",
			models.TraceID(strings.Repeat("7", 31) + "x")} {
			first := store(models.WithTraceID(t.Context(), id), f.site)
			second := store(models.WithTraceID(t.Context(), id), f.site)
			if string(first[:]) >= string(second[:]) || first[6]>>4 != 7 || second[8]>>6 != 2 {
				t.Errorf("%s, %q: %x, then %x", kind, id, first, second)
			}
			if trace, err := f.Trace(t.Context(), f.site.OrganisationID, id); !errors.Is(err, models.ErrNotFound) {
				t.Errorf("%s, %q: %+v, %v", kind, id, trace, err)
			}
		}
	}
}

// A trace shows overdue subjects as ended, as single reads do.
func TestTraceOfWhatIsOver(t *testing.T) {
	f := newTraced(t)
	makers, ids := f.makers(t), map[models.TraceKind]models.TraceID{}
	for kind, store := range makers {
		ids[kind] = models.NewTraceID()
		store(models.WithTraceID(t.Context(), ids[kind]), f.site)
	}
	read := func(kind models.TraceKind) models.Trace {
		t.Helper()
		trace, err := f.Trace(t.Context(), f.site.OrganisationID, ids[kind])
		must(t, err)
		return trace
	}
	modelstest.AdvanceClock(t, f.Store, models.DefaultIntentLife)
	intent := read(models.TracePaymentIntent)
	if intent.Intent.Status != models.TransactionExpired || len(intent.Events) != 1 || intent.Attempts != 0 {
		t.Errorf("payment intent %+v with %d events", intent.Intent, len(intent.Events))
	}
	modelstest.AdvanceClock(t, f.Store, models.SettleWithin)
	batch := read(models.TraceBatch)
	if batch.Batch.State != models.BatchSettled || batch.Rows[models.OutcomeTimedOut] != 2 || batch.At != noon {
		t.Errorf("batch %+v with rows %v", batch.Batch, batch.Rows)
	}
	modelstest.AdvanceClock(t, f.Store, models.DefaultInvitationLife)
	if link := read(models.TraceInvitation).Link; link.State != models.LinkExpired {
		t.Errorf("link %+v", link)
	}
	modelstest.AdvanceClock(t, f.Store, models.BatchRetention)
	if trace, err := f.Trace(t.Context(), f.site.OrganisationID, ids[models.TraceBatch]); !errors.Is(err,
		models.ErrNotFound) {
		t.Errorf("after its retention: %+v, %v", trace, err)
	}
	modelstest.Audit(t, f.Store)
}

// fill inserts n rows for each Site of the organisation into every table that a trace searches. All
// ids share a quarter of an hour. The organisation has as many events, and statistics as autovacuum
// makes them.
func (f *traced) fill(t *testing.T, n int) {
	t.Helper()
	tx, err := f.DB().BeginTx(t.Context(), nil)
	must(t, err)
	id := `('01a21f2' || substr(md5(?2 || i), 1, 5) || '7' ||
		substr(md5(?2 || i), 6, 3) || '8' || substr(md5(?2 || i), 9, 15))::uuid`
	trace := `substr(md5(i::text), 1, 32)`
	for _, query := range []string{
		"SET LOCAL session_replication_role = replica", // the counts of links do not matter
		`INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, row_count,
			total_amount, currency,
			submitted_at, settle_by, fingerprint, trace_id)
		 SELECT s.id, ` + id + `, s.organisation_id, 'batch ' || i, 1, 1, 1, 1, 'AUD', ?1, ?1, '', ` + trace + `
		 FROM sites s, generate_series(1, ?3) AS i WHERE s.organisation_id = ?0`,
		`INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, amount, currency, qr_code_format,
			created_at, expires_at, trace_id)
		 SELECT s.id, ` + id + `, s.organisation_id, 1, s.id::text || i, 1, 'AUD', 'text', ?1, ?1, ` + trace + `
		 FROM sites s, generate_series(1, ?3) AS i WHERE s.organisation_id = ?0`,
		`INSERT INTO customer_links (site_id, id, customer_reference, invited_at, expires_at, key_id, trace_id)
		 SELECT s.id, gen_random_uuid(), 'customer ' || i, ?1, ?1, gen_random_uuid(), ` + trace + `
		 FROM sites s, generate_series(1, ?3) AS i WHERE s.organisation_id = ?0`,
		`INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status,
			is_test, status, created_at,
			requested_at, trace_id, body)
		 SELECT ?0, intent.id, gen_random_uuid(), 'transactionStatus', intent.id, 'Settled', i % 2 = 0,
		 	'delivered', ?1, ?1, ` + trace + `, 'x'
		 FROM generate_series(1, ?3) AS i, LATERAL (SELECT ` + id + ` OFFSET 0) AS intent (id)`,
	} {
		_, err = tx.ExecContext(t.Context(), query, f.site.OrganisationID, noon, "x", n)
		must(t, err)
	}
	must(t, tx.Commit())
	for _, table := range []string{"sites", "batches", "payment_intents", "customer_links", "webhook_events"} {
		modelstest.Vacuum(t, f.Store, table)
	}
}

// A trace reads few blocks, however large the tables are, whether or not it exists.
func TestTraceReadsLittle(t *testing.T) {
	f := newTraced(t)
	const rows, most = 20_000, 60 // of some three thousand blocks in each of three Sites
	own := models.NewTraceID()
	var before [2]int
	for i := range 2 {
		if i == 1 {
			f.fill(t, rows)
			f.makers(t)[models.TracePaymentIntent](models.WithTraceID(t.Context(), own), f.sister)
		}
		for _, id := range []models.TraceID{models.NewTraceID(), own, "01a21f2aaaaa7aaaaaaaaaaaaaaaaaaa"} {
			plans, err := models.ExplainTrace(t.Context(), f.Store, f.site.OrganisationID, id)
			must(t, err)
			for _, plan := range plans {
				before[i] = max(before[i], plan.Blocks())
				if tables := sequential(plan); len(tables) > 0 || plan.Blocks() > most {
					t.Errorf("%s: reads %d blocks, all of %q\n%s", id, plan.Blocks(), tables, plan.JSON)
				}
			}
		}
	}
	t.Logf("blocks: %v in empty tables, %v with %d rows a Site", before[0], before[1], rows)
}
