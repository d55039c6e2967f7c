package api_test

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

type movement struct {
	MovementID, Currency, BatchReference, RowReference, CustomerReference, PaymentIntentID, OrderID string
	At                                                                                              models.Millis
	Amount                                                                                          models.Amount
}

type movementPage struct {
	Items              []movement
	TotalAmount        models.Amount
	TotalItems         int
	NextHref, PrevHref string
}

// movements returns a path below the Site's movements.
func (b *billing) movements(query string) string {
	return "/billing/sites/" + b.site.String() + "/movements" + query
}

// table returns a client that accepts CSV.
func (b *billing) table() *billing {
	c := *b
	c.Client = b.With("Accept", "text/csv")
	return &c
}

// moveByBatch debits two of three customers in a batch.
func (b *batching) moveByBatch(t testing.TB, reference string) {
	t.Helper()
	chunk := b.submit(t, reference, "ada", "=bob", "eve")
	for i, o := range []models.RowOutcome{models.OutcomeSucceeded, models.OutcomeSucceeded, models.OutcomeTimedOut} {
		b.finish(t, chunk, models.RowResult{Index: i, Outcome: o})
		b.advance(t, time.Millisecond)
	}
}

func TestMovementAnswers(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	golden(t, "movements-none", b.Get(b.movements("")).Expect(200))
	b.moveByBatch(t, "2026/11")
	c := &paying{billing: b.billing, tasks: b.tasks}
	_, code := c.intent(t)
	c.finish(t, c.pay(t, code), models.TransactionResult{Status: models.TransactionSettled})

	golden(t, "movements", b.Get(b.movements("")).Expect(200))
	golden(t, "movements-first-page", b.Get(b.movements("?limit=1")).Expect(200))
	middle := b.Get(link(dataOf[movementPage](b.Get(b.movements("?limit=1"))).NextHref)).Expect(200)
	golden(t, "movements-middle-page", middle)
	golden(t, "movements-last-page", b.Get(link(dataOf[movementPage](middle).NextHref)).Expect(200))
	golden(t, "movements-invalid-parameter", b.Get(b.movements("?limit=0&from=-&to=")).Expect(400))
	golden(t, "movements-invalid-pagination-link", b.Get(b.movements("?cursor=x")).Expect(400))
	first, again := dataOf[movementPage](b.Get(b.movements(""))), dataOf[movementPage](b.Get(b.movements("")))
	if diff := cmp.Diff(first, again); diff != "" || first.Items[0].MovementID == first.Items[1].MovementID {
		t.Errorf("names change, or are not different: %s", diff)
	}
	if other := dataOf[movementPage](b.Get("/billing/sites/" + b.sister.String() +
		"/movements")); other.TotalItems != 0 {
		t.Errorf("of the sister Site: %+v", other)
	}

	table := b.table().Get(b.movements("")).Expect(200)
	golden(t, "movements-table", table)
	if got := table.Header.Get("Content-Disposition"); got != `attachment; filename="movements-`+b.site.String()+
		`.csv"` {
		t.Errorf("Content-Disposition %s", got)
	}
	b.table().Get(b.movements("?cursor=x")).Refused(400, "requests:invalid-pagination-link nextHref")
	b.table().Get(b.movements("?from=x")).Refused(400, "requests:invalid-parameter from")
}

func TestMovementRange(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for i := range 3 {
		b.moveByBatch(t, fmt.Sprint(i)) // at 0 and 1, 3 and 4, 6 and 7
	}
	for query, want := range map[string]string{
		"":                       "2 2 1 1 0 0",
		"?from=%d3":              "2 2 1 1",
		"?to=%d4":                "1 1 0 0",
		"?from=%d3&to=%d5":       "1 1",
		"?from=%d4&to=%d3":       "",
		"?to=-1":                 "",
		"?from=9007199254740991": "",
		"?from=-9223372036854775808&to=9223372036854775807": "2 2 1 1 0 0",
	} {
		query = strings.ReplaceAll(query, "%d", fmt.Sprint(int64(noon)/10))
		page := dataOf[movementPage](b.Get(b.movements(query)).Expect(200))
		var got []string
		for _, m := range page.Items {
			got = append(got, m.BatchReference)
		}
		if strings.Join(got, " ") != want || page.TotalItems != len(got) ||
			page.TotalAmount != models.Amount(len(got)/2*201) {
			t.Errorf("%s: %+v", query, page)
		}
		rows, err := csv.NewReader(strings.NewReader(string(b.table().Get(b.movements(query)).Expect(200).Body))).
			ReadAll()
		if err != nil || len(rows) != len(got)+1 {
			t.Errorf("%s: a table of %d rows, %v", query, len(rows), err)
		}
	}
}

func TestMovementTableIsChosenByAccept(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for accept, isTable := range map[string]bool{
		"text/csv": true, "TEXT/CSV;charset=utf-8": true, "application/json;q=0.5, text/csv": true,
		"text/csv, */*;q=0.1": true,
		"text/csv;q=0.2, */*": true, "application/json, text/csv": true,
		"": false, "*/*": false, "text/*": false, "application/json": false, "text/csv;q=0": false,
		"application/json, text/csv;q=0.9": false, "text/csvx": false, `x/y;a="text/csv"`: false,
	} {
		a := b.With("Accept", accept).Get(b.movements("")).Expect(200)
		if got := a.Header.Get("Content-Type"); strings.HasPrefix(got, "text/csv;charset=UTF-8") != isTable {
			t.Errorf("%s: %s", accept, got)
		}
	}
}

// fillLedger adds entries to the Site's ledger, ten to a millisecond.
func (b *billing) fillLedger(t *testing.T, n int) {
	t.Helper()
	_, err := b.store.DB().ExecContext(t.Context(), `
		INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
			customer_reference)
		SELECT 'r1_' || encode(sha256(int4send(i)), 'hex'), ?, ? + i / 10, i, 'AUD', 'batch, "one"', 'row ' || i,
			'customer'
		FROM generate_series(1, ?) AS i`, b.site, noon, n)
	check(t, err)
}

// A long table is streamed in parts and contains each movement once.
func TestMovementTableIsStreamed(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	const n = 3*models.MaxMovements + 7
	b.fillLedger(t, n)
	a := b.table().Get(b.movements("?limit=1")).Expect(200)
	if got := a.Header.Get("Content-Length"); got != "" || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", a.Header)
	}
	rows, err := csv.NewReader(strings.NewReader(string(a.Body))).ReadAll()
	check(t, err)
	seen, names, last := map[string]bool{}, map[string]bool{}, "9"
	for _, row := range rows[1:] {
		names[row[0]], seen[row[5]] = true, true
		if row[1] > last {
			t.Fatalf("%v comes after %s", row, last)
		}
		last = row[1]
	}
	if len(rows) != n+1 || len(seen) != n || len(names) != n || rows[1][4] != `batch, "one"` {
		t.Errorf("%d rows, %d different, %d names, first %q", len(rows), len(seen), len(names), rows[1])
	}
	if head := b.table().Send(http.MethodHead, b.movements(""), nil).Expect(200); len(head.Body) != 0 {
		t.Errorf("HEAD: %v", head.Header)
	}
	exact := b.table().Get(b.movements(fmt.Sprintf("?to=%d", int64(noon)+models.MaxMovements/10))).Expect(200) // 1009
	if got := strings.Count(string(exact.Body), "\r\n"); got != models.MaxMovements+9+1 {
		t.Errorf("%d lines", got)
	}
}

// The steps of a streamed table count for its organisation, as its requests do.
func TestMovementTableCountsForItsOrganisation(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	b := newBilling(t, func(c *api.Config) { cfg = *c })
	b.fillLedger(t, models.MaxMovements+1)
	cfg.Metrics = nil
	server := api.New(cfg)
	body := openTable(t, apitest.New(t, server).BaseURL+b.movements(""))
	_, err := io.Copy(io.Discard, body)
	check(t, errors.Join(err, body.Close()))
	owner := cfg.Authenticator.(callers)["owner"].OrganisationID
	if got := models.OrganisationID(server.LastCaller()); got != owner {
		t.Errorf("the last step counted for %v, not %v", got, owner)
	}
}

// A client detects that a table is incomplete.
func TestIncompleteMovementTable(t *testing.T) {
	t.Parallel()
	sites := &vanishingSites{}
	b := newBilling(t, func(cfg *api.Config) {
		sites.Sites, cfg.Sites, cfg.RecheckInterval = cfg.Sites, sites, time.Nanosecond
	})
	b.fillLedger(t, 2*models.MaxMovements)
	a, err := b.table().Try(context.Background(), http.MethodGet, b.movements(""), nil)
	if err == nil || a != nil {
		t.Errorf("got a table of %d bytes", len(a.Body))
	}
}

// vanishingSites finds a Site once; afterwards the Site does not exist.
type vanishingSites struct {
	api.Sites
	asked atomic.Bool
}

func (v *vanishingSites) Site(ctx context.Context, owner models.OrganisationID, id models.SiteID) (models.Site, error) {
	if v.asked.Swap(true) {
		return models.Site{}, models.ErrNotFound
	}
	return v.Sites.Site(ctx, owner, id)
}

// One process streams at most MaxExports tables at once.
func TestConcurrentMovementTables(t *testing.T) {
	t.Parallel()
	sites := &heldSites{release: make(chan struct{})}
	b := newBilling(t, func(cfg *api.Config) {
		sites.Sites, cfg.Sites, cfg.RecheckInterval = cfg.Sites, sites, time.Nanosecond
	})
	b.fillLedger(t, 2*models.MaxMovements)
	var bodies []io.ReadCloser
	for range api.MaxExports {
		bodies = append(bodies, openTable(t, b.BaseURL+b.movements("")))
	}
	if a := b.table().Get(b.movements("")).Expect(503); a.Header.Get("Retry-After") == "" {
		t.Errorf("headers %v", a.Header)
	}
	b.Get(b.movements("")).Expect(200)
	close(sites.release)
	for _, body := range bodies {
		table, err := io.ReadAll(body)
		check(t, errors.Join(err, body.Close()))
		if got := strings.Count(string(table), "\r\n"); got != 2*models.MaxMovements+1 {
			t.Errorf("%d lines", got)
		}
	}
	b.table().Get(b.movements("")).Expect(200)
}

// A server that shuts down completes the tables that it has begun.
func TestMovementTableSurvivesShutdown(t *testing.T) {
	t.Parallel()
	sites := &heldSites{release: make(chan struct{})}
	var cfg api.Config
	b := newBilling(t, func(c *api.Config) {
		cfg = *c
		cfg.Sites, cfg.RecheckInterval = sites, time.Nanosecond
		sites.Sites = c.Sites
	})
	b.fillLedger(t, 2*models.MaxMovements)
	server := api.New(cfg)
	caller := apitest.New(t, server)
	body := openTable(t, caller.BaseURL+b.movements(""))
	shut := make(chan error, 1)
	go func() { shut <- server.Shutdown(t.Context()) }()
	apitest.AwaitNoListener(t, caller.BaseURL)
	close(sites.release)
	table, err := io.ReadAll(body)
	check(t, errors.Join(err, body.Close()))
	if got := strings.Count(string(table), "\r\n"); got != 2*models.MaxMovements+1 {
		t.Errorf("%d lines", got)
	}
	check(t, <-shut)
}

// openTable requests a table and returns its body, of which it has read nothing.
func openTable(t *testing.T, url string) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check(t, err)
	request.Header.Set("Authorization", "Bearer owner")
	request.Header.Set("Accept", "text/csv")
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	return response.Body
}

// heldSites finds a Site at once the first time, and later only after release is closed.
type heldSites struct {
	api.Sites
	asked   atomic.Bool
	release chan struct{}
}

func (h *heldSites) Site(ctx context.Context, owner models.OrganisationID, id models.SiteID) (models.Site, error) {
	if h.asked.Swap(true) {
		<-h.release
	}
	return h.Sites.Site(context.WithoutCancel(ctx), owner, id)
}
