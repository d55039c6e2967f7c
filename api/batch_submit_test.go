package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

func TestSubmissionAnswers(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	body := bodyOf("2026/11 #7", "ada", "bob")
	first := b.Post(b.batches(""), body).Expect(202)
	golden(t, "batch-receipt", first)
	if tasks := <-b.tasks; len(tasks) != 1 {
		t.Errorf("told of %d tasks", len(tasks))
	}
	location := "/billing/sites/" + b.site.String() + "/batches/2026%2F11%20%237"
	again := b.Post(b.batches(""), body).Expect(202)
	golden(t, "batch-receipt", again)
	for _, a := range []*apitest.Answer{first, again} {
		if a.Header.Get("Location") != location || a.Header.Get("Retry-After") != "1" {
			t.Errorf("headers %v", a.Header)
		}
	}
	if first.Header.Get("Idempotent-Replayed") != "" || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replayed: %q, then %q", first.Header.Get("Idempotent-Replayed"),
			again.Header.Get("Idempotent-Replayed"))
	}
	select {
	case <-b.tasks:
		t.Error("a replay was told of as new work")
	default:
	}
	conflict := b.Post(b.batches(""), bodyOf("2026/11 #7", "ada", "eve", "bob")).Expect(409)
	golden(t, "batch-conflict", conflict)
	if conflict.Header.Get("Location") != "" || conflict.Header.Get("Retry-After") != "" {
		t.Errorf("headers of a conflict: %v", conflict.Header)
	}
	golden(t, "batch-faults", b.Post(b.batches(""), `{"batchReference":".","rows":[
		{"customerReference":"ada","rowReference":"r","amount":0},{"rowReference":"r","amount":1.0},
		{"customerReference":"","rowReference":null,"amount":9007199254740991},7]}`).Expect(400))
	golden(t, "batch-validation", b.Post(b.batches("/validation"), bodyOf("any", "ada", "bob")).Expect(200))
}

func TestReceiptOfASettledBatchStays(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	body := bodyOf("b", "ada")
	first := dataOf[receipt](b.Post(b.batches(""), body).Expect(202))
	b.finish(t, b.claim(t), outcomes(models.OutcomeSucceeded)...)
	b.advance(t, time.Hour)
	if again := dataOf[receipt](b.Post(b.batches(""), body).Expect(202)); again != first {
		t.Errorf("%+v, first %+v", again, first)
	}
}

func TestSubmissionFaults(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	row := `{"customerReference":"c","rowReference":"r%d","amount":%d}`
	rows := func(n int, amount int64) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(row, i, amount)
		}
		return strings.Join(list, ",")
	}
	with := func(rows string) string { return `{"batchReference":"b","rows":[` + rows + `]}` }
	one := func(field string) string {
		known := map[string]string{"customerReference": `"c"`, "rowReference": `"r"`, "amount": "1"}
		name, value, _ := strings.Cut(field, ":")
		known[name] = value
		var members []string
		for name, value := range known {
			if value != "-" {
				members = append(members, fmt.Sprintf("%q:%s", name, value))
			}
		}
		return with("{" + strings.Join(members, ",") + "}")
	}
	const invalid, missing = "batches:invalid-field ", "batches:missing-field "
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"nothing", `{}`, []string{missing + "batchReference", missing + "rows"}},
		{"nulls", `{"batchReference":null,"rows":null}`, []string{missing + "batchReference", missing + "rows"}},
		{"other types", `{"batchReference":7,"rows":{}}`, []string{invalid + "batchReference", invalid + "rows"}},
		{"empty reference", `{"batchReference":"","rows":[` + rows(1, 1) + `]}`, []string{invalid + "batchReference"}},
		{"long reference", `{"batchReference":"` + strings.Repeat("é", 129) + `","rows":[` + rows(1, 1) + `]}`,
			[]string{invalid + "batchReference"}},
		{"dots", `{"batchReference":"..","rows":[` + rows(1, 1) + `]}`, []string{invalid + "batchReference"}},
		{"control character", `{"batchReference":"a\u0085","rows":[` + rows(1, 1) + `]}`,
			[]string{invalid + "batchReference"}},
		{"no rows", with(""), []string{invalid + "rows"}},
		{"1001 rows", with(rows(1001, 1)), []string{invalid + "rows"}},
		{"rows of other types", with(`1,"x",null,[],true`), []string{
			invalid + "rows[0]", invalid + "rows[1]", invalid + "rows[2]", invalid + "rows[3]", invalid + "rows[4]",
		}},
		{"empty row", with(`{}`), []string{missing + "rows[0].customerReference", missing + "rows[0].rowReference",
			missing + "rows[0].amount"}},
		{"amount 0", one("amount:0"), []string{invalid + "rows[0].amount"}},
		{"amount negative", one("amount:-1"), []string{invalid + "rows[0].amount"}},
		{"amount -0", one("amount:-0"), []string{invalid + "rows[0].amount"}},
		{"amount 1.0", one("amount:1.0"), []string{invalid + "rows[0].amount"}},
		{"amount 1e2", one("amount:1e2"), []string{invalid + "rows[0].amount"}},
		{"amount in a string", one(`amount:"1"`), []string{invalid + "rows[0].amount"}},
		{"amount true", one("amount:true"), []string{invalid + "rows[0].amount"}},
		{"amount null", one("amount:null"), []string{missing + "rows[0].amount"}},
		{"amount too large", one("amount:9007199254740992"), []string{invalid + "rows[0].amount"}},
		{"amount far too large", one("amount:99999999999999999999"), []string{invalid + "rows[0].amount"}},
		{"no customer", one("customerReference:-"), []string{missing + "rows[0].customerReference"}},
		{"customer a number", one("customerReference:1"), []string{invalid + "rows[0].customerReference"}},
		{"row reference with a newline", one(`rowReference:"a\nb"`), []string{invalid + "rows[0].rowReference"}},
		{"sum too large", with(fmt.Sprintf(row, 1, models.MaxAmount) + "," + fmt.Sprintf(row, 2, 1)),
			[]string{invalid + "rows"}},
		{"sum far too large", with(rows(1000, int64(models.MaxAmount))), []string{invalid + "rows"}},
		{"duplicates", with(rows(2, 1) + "," + rows(2, 1)), []string{
			"batches:duplicate-row-reference rows[2].rowReference",
			"batches:duplicate-row-reference rows[3].rowReference",
		}},
		{"everything at once", `{"rows":[` + fmt.Sprintf(row, 1, models.MaxAmount) + "," + fmt.Sprintf(row, 1, 5) +
			`,{"rowReference":"x","amount":0}]}`, []string{
			missing + "batchReference", missing + "rows[2].customerReference", invalid + "rows[2].amount",
			"batches:duplicate-row-reference rows[1].rowReference", invalid + "rows",
		}},
		{"case of a key", `{"BatchReference":"b","rows":[]}`, []string{"requests:malformed-json batchReference"}},
		{"case of a row's key", with(`{"customerReference":"c","rowreference":"r","amount":1}`),
			[]string{"requests:malformed-json rows[0].rowReference"}},
		{"duplicate key", `{"batchReference":"b","batchReference":"b","rows":[]}`, []string{"requests:malformed-json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{"", "/validation"} {
				b.For(t).Post(b.batches(path), c.body).Refused(400, c.want...)
			}
		})
	}
	if list := dataOf[batchPage](b.Get(b.batches(""))); len(list.Items) != 0 {
		t.Errorf("something was stored: %+v", list)
	}
	b.Post(b.batches(""), with(rows(1000, 1))).Expect(202) // no reference was consumed
	b.Post(b.batches(""), `{"batchReference":"max","rows":[`+fmt.Sprintf(row, 1, models.MaxAmount)+`]}`).Expect(202)
}

func TestSubmissionFaultMessages(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	a := b.Post(b.batches(""), `{"batchReference":"b","rows":[
		{"customerReference":"c","rowReference":"secret","amount":1},
		{"customerReference":"c","rowReference":"x","amount":1},{"customerReference":"c","rowReference":"secret","amount":1}]}`)
	got := a.Refused(400, "batches:duplicate-row-reference rows[2].rowReference").Faults()[0].Message
	if !strings.Contains(got, "rows[0].rowReference") || strings.Contains(string(a.Body), "secret") {
		t.Errorf("message %q", got)
	}
	all := b.Post(b.batches(""), `{"batchReference":"b","rows":[`+strings.Repeat("{},", 99)+"{}]}").Expect(400).Faults()
	if len(all) != 100 {
		t.Errorf("%d faults are listed", len(all))
	}
}

func TestSubmissionsAreComparedByParsedValue(t *testing.T) {
	t.Parallel()
	const base = `{"batchReference":"b","note":{"x":[1,null,true],"y":"z"},"rows":[
		{"customerReference":"ada/é","rowReference":"r1","amount":100,"tag":1.0},{"customerReference":"bob","rowReference":"r2","amount":200}]}`
	b := newBatching(t)
	first := dataOf[receipt](b.Post(b.batches(""), base).Expect(202))
	replace := func(pairs ...string) string {
		changed := strings.NewReplacer(pairs...).Replace(base)
		if changed == base {
			t.Fatalf("%q changes nothing", pairs)
		}
		return changed
	}
	for name, same := range map[string]string{
		"white space": strings.Join(strings.Fields(base), " \n"),
		"escapes":     replace(`"ada/é"`, `"\u0061da\/\u00E9"`, `"batchReference"`, `"batch\u0052eference"`),
		"key order": `{"rows":[{"tag":1.0,"amount":100,"rowReference":"r1","customerReference":"ada/é"},
			{"amount":200,"customerReference":"bob","rowReference":"r2"}],"note":{"y":"z","x":[1,null,true]},"batchReference":"b"}`,
	} {
		a := b.Post(b.batches(""), same).Expect(202)
		if a.Header.Get("Idempotent-Replayed") != "true" || dataOf[receipt](a) != first {
			t.Errorf("%s: not the same submission", name)
		}
	}
	for name, c := range map[string]struct {
		body  string
		paths string
	}{
		"amount":               {replace(`200`, `201`), "rows[1].amount"},
		"normal form":          {replace(`é`, "e\u0301"), "rows[0].customerReference"},
		"literal":              {replace(`1.0`, `1`), "rows[0].tag"},
		"unknown value":        {replace(`"z"`, `"Z"`), "note.y"},
		"null or absent":       {replace(`1,null,true`, `1,true`), "note.x[1] note.x[2]"},
		"unknown field gone":   {replace(`,"tag":1.0`, ``), "rows[0].tag"},
		"unknown field new":    {replace(`"amount":200`, `"amount":200,"tag":null`), "rows[1].tag"},
		"unknown of the batch": {replace(`"rows"`, `"a.b":0,"rows"`), `["a.b"]`},
		"kind":                 {replace(`{"x":[1,null,true],"y":"z"}`, `[]`), "note"},
		"row gone": {replace(`,{"customerReference":"bob","rowReference":"r2","amount":200}`, ``),
			"rows[1]"},
		"row new": {replace(`200}`, `200},{"customerReference":"c","rowReference":"r3","amount":1}`),
			"rows[2]"},
		"row order": {`{"batchReference":"b","note":{"x":[1,null,true],"y":"z"},"rows":[{"customerReference":"bob","rowReference":"r2","amount":200},
			{"customerReference":"ada/é","rowReference":"r1","amount":100,"tag":1.0}]}`,
			"rows[0].amount rows[0].customerReference rows[0].rowReference rows[0].tag rows[1].amount rows[1].customerReference rows[1].rowReference rows[1].tag"},
		"several": {replace(`100`, `7`, `"z"`, `1`, `"r2"`, `"r9"`), "note.y rows[0].amount rows[1].rowReference"},
	} {
		want := []string{"batches:batch-reference-conflict batchReference"}
		for path := range strings.SplitSeq(c.paths, " ") {
			want = append(want, "batches:batch-reference-conflict "+path)
		}
		t.Run(name, func(t *testing.T) { b.For(t).Post(b.batches(""), c.body).Refused(409, want...) })
	}
	b.Post(b.batches(""), base).Expect(202)
}

func TestConflictListsTwentyPathsWithoutValues(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.Post(b.batches(""), bodyOf("b", customersFor(50)...)).Expect(202)
	a := b.Post(b.batches(""), strings.ReplaceAll(bodyOf("b", customersFor(50)...), "customer-", "secret-")).Expect(409)
	faults := a.Faults()
	if len(faults) != 1+api.MaxDifferences || faults[1].Target != "rows[0].customerReference" ||
		strings.Contains(string(a.Body), "secret") {
		t.Errorf("%d faults: %s", len(faults), a.Body)
	}
}

// The answer to a conflicting submission lists the differing paths in canonical order, without
// values. They include added and removed rows and unknown fields.
func TestConflictAnswers(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	row := `{"customerReference":"ada","rowReference":"r%d","amount":%d%s}`
	rows := func(first string, n int, amount int64) string {
		list := []string{first}
		for i := 1; i < n; i++ {
			list = append(list, fmt.Sprintf(row, i, amount, ""))
		}
		return strings.Join(list, ",")
	}
	submit := func(unknown, rows string) *apitest.Answer {
		return b.Post(b.batches(""), `{"batchReference":"b",`+unknown+`"rows":[`+rows+`]}`)
	}
	first := fmt.Sprintf(row, 0, 100, `,"tag":{"a":1,"a.b":[1]}`)
	submit(`"note":"secret one",`, rows(first, 40, 1)).Expect(202)
	golden(t, "batch-conflict-fields", submit(`"other":"secret two",`,
		rows(fmt.Sprintf(row, 0, 101, `,"tag":{"a":2,"a.b":[2]}`), 40, 1)).Expect(409))
	golden(t, "batch-conflict-row-added", submit(`"note":"secret one",`, rows(first, 41, 1)).Expect(409))
	golden(t, "batch-conflict-row-removed", submit(`"note":"secret one",`, rows(first, 39, 1)).Expect(409))
	golden(t, "batch-conflict-many", submit(`"note":"secret one",`, rows(first, 40, 2)).Expect(409))
}

// submitConcurrently submits n bodies concurrently.
func (b *batching) submitConcurrently(
	t *testing.T, n int, body func(i int) string,
) (statuses map[int]int, answers []*apitest.Answer) {
	t.Helper()
	return b.postAtOnce(t, n, b.batches(""), body)
}

// postAtOnce posts n bodies to a path concurrently.
func (b *batching) postAtOnce(
	t *testing.T, n int, path string, body func(i int) string,
) (statuses map[int]int, answers []*apitest.Answer) {
	t.Helper()
	results := make(chan *apitest.Answer, n)
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			a, err := b.Try(context.Background(), http.MethodPost, path, body(i))
			if err != nil {
				t.Errorf("submission %d: %v", i, err)
			}
			results <- a
		}()
	}
	close(start)
	statuses = map[int]int{}
	for range n {
		if a := <-results; a != nil {
			statuses[a.Status]++
			answers = append(answers, a)
		}
	}
	return statuses, answers
}

func TestConcurrentSubmissions(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	statuses, answers := b.submitConcurrently(t, 50, func(int) string { return bodyOf("same", "ada", "bob") })
	if diff := cmp.Diff(map[int]int{202: 50}, statuses); diff != "" {
		t.Fatalf("identical: %s", diff)
	}
	created := 0
	for _, a := range answers {
		if a.Header.Get("Idempotent-Replayed") == "" {
			created++
		}
		if dataOf[receipt](a) != dataOf[receipt](answers[0]) {
			t.Errorf("another receipt: %s", a.Body)
		}
	}
	if created != 1 || len(b.tasks) != 1 {
		t.Errorf("%d were created, of %d there is work", created, len(b.tasks))
	}
	statuses, _ = b.submitConcurrently(t, 50, func(i int) string { return bodyOf("different", fmt.Sprint(i)) })
	if diff := cmp.Diff(map[int]int{202: 1, 409: 49}, statuses); diff != "" {
		t.Errorf("different: %s", diff)
	}
	if list := dataOf[batchPage](b.Get(b.batches(""))); list.TotalItems != 2 {
		t.Errorf("%d batches", list.TotalItems)
	}
}

func TestReferencesBelongToTheirSite(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	b.Post(b.batches(""), bodyOf("b", "ada")).Expect(202)
	a := b.Post("/billing/sites/"+b.sister.String()+"/batches", bodyOf("b", "bob")).Expect(202)
	if a.Header.Get("Idempotent-Replayed") != "" {
		t.Error("another Site's batch was replayed")
	}
	b.other.Get(b.batch("b", "")).Refused(403, "sites:site-not-accessible siteId")
	b.other.Post(b.batches(""), bodyOf("b", "ada")).Refused(403, "sites:site-not-accessible siteId")
}

func TestValidation(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	for _, reference := range []string{"invited", "linked", "revoked"} {
		b.invite(t, reference)
	}
	b.Post(b.customer("revoked", "/revocation"), nil).Expect(200)
	b.Post("/sandbox/sites/"+b.site.String()+"/customers/linked/signup", nil).Expect(200)
	var got struct {
		Rows []struct{ RowReference, Prediction string }
	}
	b.Post(b.batches("/validation"), bodyOf("b", "linked", "invited", "revoked", "unknown", "linked")).Expect(200).
		Data(&got)
	var predicted []string
	for i, row := range got.Rows {
		if row.RowReference != fmt.Sprintf("row-%d", i) {
			t.Errorf("row %d is %q", i, row.RowReference)
		}
		predicted = append(predicted, row.Prediction)
	}
	want := []string{"succeeded", "customerNotActive", "customerNotActive", "customerNotActive", "succeeded"}
	if diff := cmp.Diff(want, predicted); diff != "" {
		t.Error(diff)
	}
	b.Get(b.batch("b", "")).Expect(404)
}

func TestRateClassOfSubmissions(t *testing.T) {
	t.Parallel()
	g := &limiter{decision: ratelimit.Decision{Allowed: true}}
	b := newBilling(t, func(cfg *api.Config) { cfg.Limiter = g })
	b.Post(b.batches(""), bodyOf("b", "ada")).Expect(202) // without a notifier
	b.Post(b.batch("b", "/retry"), `{"batchReference":"c"}`).Expect(409)
	b.Post(b.batches("/validation"), bodyOf("b", "ada")).Expect(200)
	b.Post(b.batch("b", "/cancellation"), nil).Expect(200)
	b.Get(b.batch("b", "")).Expect(200)
	want := []ratelimit.Class{ratelimit.Batches, ratelimit.Batches, ratelimit.Batches, ratelimit.Default,
		ratelimit.Default}
	if diff := cmp.Diff(want, g.classes); diff != "" {
		t.Error(diff)
	}
}
