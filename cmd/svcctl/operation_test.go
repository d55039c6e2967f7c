package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// partnerPath matches the paths that partners call.
var partnerPath = regexp.MustCompile("^/(billing|checkout|webhooks|sandbox|traces)/")

// own lists the operations with commands that are written by hand.
var own = map[string]string{
	"submitBatch": "submit", "validateBatch": "batches validate", "listenToWebhooks": "listen",
}

// Every operation of the API has a command, with a flag for each parameter and field, and a CSV
// column for each field of a list.
func TestCommandsCoverTheAPI(t *testing.T) {
	t.Parallel()
	d := readDescription(t)
	covered := map[string]bool{}
	operationsSeen := 0
	for path, item := range d.Paths {
		if !partnerPath.MatchString(path) {
			continue
		}
		var common []*described
		if node, ok := item["parameters"]; ok {
			if err := node.Decode(&common); err != nil {
				t.Fatal(err)
			}
		}
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			var o described
			if err := node.Decode(&o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			operationsSeen++
			if own[o.OperationID] != "" {
				continue
			}
			i := slices.IndexFunc(operations, func(op operation) bool {
				return strings.EqualFold(op.method, method) && patternOf(op.path).MatchString(path)
			})
			if i < 0 {
				t.Errorf("%s %s has no command", method, path)
				continue
			}
			covered[operations[i].noun+" "+operations[i].verb] = true
			o.Parameters = append(o.Parameters, common...)
			compareOperation(t, d, operations[i], &o)
		}
	}
	if operationsSeen < 35 || len(covered) != len(operations) {
		t.Errorf("the description has %d operations; %d of %d commands call one", operationsSeen, len(covered),
			len(operations))
	}
}

// patternOf returns a pattern for the paths of the description that a path of ours stands for.
func patternOf(path string) *regexp.Regexp {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(path), `\{endpoint\}`, `(default|\{siteId\})`)
	return regexp.MustCompile("^" + pattern + "$")
}

func compareOperation(t *testing.T, d *description, op operation, o *described) {
	t.Helper()
	name := op.noun + " " + op.verb
	var query []string
	for _, p := range o.Parameters {
		p = d.resolve(p)
		// The flag --limit of a paged list counts the items of all pages.
		if isPaging := op.list == listPaged && p.Name == "limit" || p.Name == "cursor"; p.In == "query" && !isPaging {
			query = append(query, p.Name)
		}
	}
	compareNames(t, name+": query", query, namesOf(op.query))
	body := d.resolve(o.RequestBody)
	if body != nil {
		fields := slices.Collect(maps.Keys(d.properties(body.Content["application/json"].Schema)))
		given := namesOf(op.body)
		for _, a := range op.args {
			if !strings.Contains(op.path, "{"+a.name+"}") {
				given = append(given, max(a.field, map[bool]string{true: a.name}[a.field == ""]))
			}
		}
		compareNames(t, name+": body", fields, given)
	}
	if op.list == listNone {
		return
	}
	data := d.properties(d.resolve(o.Responses["200"]).Content["application/json"].Schema)["data"]
	item := d.properties(d.properties(data)["items"].Items)
	fields := map[string]bool{}
	for _, col := range op.columns {
		for field := range strings.SplitSeq(col.field, "|") {
			first, _, _ := strings.Cut(field, ".")
			fields[first] = true
		}
	}
	compareNames(t, name+": columns", slices.Collect(maps.Keys(item)), slices.Collect(maps.Keys(fields)))
}

func namesOf(parameters []parameter) []string {
	var names []string
	for _, p := range parameters {
		names = append(names, p.name)
	}
	return names
}

func compareNames(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("%s: the description has %v, the command %v", what, want, got)
	}
}

// The values of enums are those of the description.
func TestEnumsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../api/docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	collectEnums(document, described)
	for name, values := range map[string][]string{
		"link states": linkStates, "statuses": statuses, "event types": eventTypes, "event statuses": eventStatuses,
		"behaviours": behaviours,
	} {
		if sorted := slices.Sorted(slices.Values(values)); !described[strings.Join(sorted, " ")] {
			t.Errorf("%s: the description has no enum of %v", name, sorted)
		}
	}
}

// collectEnums collects the sorted values of every enum in a document.
func collectEnums(value any, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			list, ok := inner.([]any)
			if name != "enum" || !ok {
				collectEnums(inner, into)
				continue
			}
			var texts []string
			for _, item := range list {
				texts = append(texts, fmt.Sprint(item))
			}
			slices.Sort(texts)
			into[strings.Join(texts, " ")] = true
		}
	case []any:
		for _, inner := range v {
			collectEnums(inner, into)
		}
	}
}

// A table fits 100 columns with ids and references as they usually are.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	id := "01a21f3c-0d4f-74df-bb40-7ebbe5759b72"
	usual := map[string]any{
		"customerReference": "tenant-1207", "batchReference": "2026/11 rent", "rowReference": "flat 7",
		"paymentIntentId": "pi_" + id, "idempotencyKey": "evt_" + id, "orderId": "order-42", "endpoint": "default",
		"attemptCount": "6", "url": "https://tills.example/webhooks", "type": "transactionStatus", "status": "undelivered",
		"state": "inProgress", "transactionStatus": "Cancelled", "events": "transactionStatus, batchSettled",
	}
	for _, op := range operations {
		if op.list == listNone {
			continue
		}
		width := 0
		for _, col := range op.columns {
			if col.title == "" {
				continue
			}
			first, _, _ := strings.Cut(col.field, "|")
			value, ok := usual[first].(string)
			switch {
			case ok:
			case timeFields[first]:
				value = "2026-11-27T22:29:32Z"
			default:
				value = "1250000"
			}
			width += max(len(value), len(col.title)) + columnGap
		}
		if width-columnGap > 100 {
			t.Errorf("%s %s is %d columns wide", op.noun, op.verb, width-columnGap)
		}
	}
}

// Lists fetch pages as needed, in each form, and say when they show only a part.
func TestListsAreFetchedInPages(t *testing.T) {
	t.Parallel()
	var asked []string
	server := newAPI(t, map[string]http.HandlerFunc{
		"GET /billing/sites/site/customers": func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RawQuery)
			page := map[string]string{
				"": `{"items":[{"customerReference":"=1+1","state":"invited","invitedAt":1795818572681},
					{"customerReference":"Zoë 東","state":"linked","invitedAt":1795818572680,"linkedAt":1795818572690}],
					"totalItems":3,"nextHref":"http://elsewhere.invalid/billing/sites/site/customers?cursor=c"}`,
				"c": `{"items":[{"customerReference":"a;b","state":"revoked","invitedAt":1}],"totalItems":3}`,
			}[r.URL.Query().Get("cursor")]
			answer(page)(w, r)
		},
	})
	const head = "CUSTOMER  STATE    INVITED               LINKED                EXPIRES\n" +
		"=1+1      invited  2026-11-27T22:29:32Z\n" +
		"Zoë 東    linked   2026-11-27T22:29:32Z  2026-11-27T22:29:32Z\n"
	for _, c := range []struct {
		args, out, errOut, query string
	}{
		{"--limit 0", head + "a;b       revoked  1970-01-01T00:00:00Z\n", "", "limit=100"},
		{"--limit 3 --state linked", head + "a;b       revoked  1970-01-01T00:00:00Z\n", "", "state=linked&limit=3"},
		{"--limit 2", head, "showing 2 of 3; --limit 0 shows all\n", "limit=2"},
		{"--limit 1", "CUSTOMER  STATE    INVITED               LINKED  EXPIRES\n=1+1      invited  2026-11-27T22:29:32Z\n",
			"showing 1 of 3; --limit 0 shows all\n", "limit=1"},
		{"-o csv --invited-from 1970-01-01T00:00:01Z", "customerReference,state,invitedAt,linkedAt,expiresAt\r\n" +
			"'=1+1,invited,1795818572681,,\r\nZoë 東,linked,1795818572680,1795818572690,\r\n\"a;b\",revoked,1,,\r\n", "",
			"invitedFrom=1000&limit=100"},
		{"-o jsonl --limit 1", `{"customerReference":"=1+1","state":"invited","invitedAt":1795818572681}` + "\n",
			"showing 1 of 3; --limit 0 shows all\n", "limit=1"},
		{"-o json --limit 1", "[\n  {\n    \"customerReference\": \"=1+1\",\n    \"state\": \"invited\",\n" +
			"    \"invitedAt\": 1795818572681\n  }\n]\n", "showing 1 of 3; --limit 0 shows all\n", "limit=1"},
	} {
		asked = nil
		r := svcctl(t.Context(), server.URL, append([]string{"customers", "list"}, strings.Fields(c.args)...)...)
		if diff := cmp.Diff(c.out, r.out); diff != "" || r.errOut != c.errOut || r.code != 0 {
			t.Errorf("%s: %d, %q (-want +printed):\n%s", c.args, r.code, r.errOut, diff)
		}
		if asked[0] != c.query {
			t.Errorf("%s: asked for %q", c.args, asked)
		}
	}
}

// The items before an error are printed.
func TestInterruptedListsAreEnded(t *testing.T) {
	t.Parallel()
	server := newAPI(t, map[string]http.HandlerFunc{
		"GET /billing/sites/site/customers": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("cursor") {
				refuse(http.StatusBadRequest, "customers:invalid-pagination-link")(w, r)
				return
			}
			answer(`{"items":[{"customerReference":"ada"}],"totalItems":2,
				"nextHref":"http://x/billing/sites/site/customers?cursor=c"}`)(w, r)
		},
	})
	for format, want := range map[string]string{
		"table": "CUSTOMER  STATE  INVITED  LINKED  EXPIRES\nada\n", "json": "[\n  {\n    \"customerReference\": \"ada\"\n  }\n]\n",
	} {
		r := svcctl(t.Context(), server.URL, "customers", "list", "-o", format)
		if r.code != exitRefused || r.out != want {
			t.Errorf("%s: %+v", format, r)
		}
	}
}

// An object is shown with its lists, and without control characters.
func TestObjectsAreReadable(t *testing.T) {
	t.Parallel()
	server := newAPI(t, map[string]http.HandlerFunc{
		"GET /webhooks/events/evt_1": answer(`{"idempotencyKey":"evt_1","type":"transactionStatus","createdAt":1795818572681,
			"test":true,"attempts":[{"number":1,"startedAt":1795818572681,"durationMs":12,"statusCode":500,
			"url":"http://x/","responseHead":"\u001b[2J"}],"body":"{\"a\":\"\u001b\"}"}`),
		"GET /traces/t": answer(`{"traceId":"t","kind":"batch","batch":{"batchReference":"b","counts":{"settled":2}},
			"rows":{"succeeded":1},"attempts":2,"events":[]}`),
	})
	r := svcctl(t.Context(), server.URL, "events", "get", "evt_1")
	want := "idempotencyKey  evt_1\ntype            transactionStatus\ncreatedAt       2026-11-27T22:29:32Z\n" +
		"test            true\nbody            {\"a\":\"\ufffd\"}\n\nattempts:\n" +
		"NO  AT                    STATUS  MS  URL        ERROR\n1   2026-11-27T22:29:32Z  500     12  http://x/\n"
	if diff := cmp.Diff(want, r.out); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
	r = svcctl(t.Context(), server.URL, "trace", "t")
	want = "traceId               t\nkind                  batch\nbatch.batchReference  b\nbatch.counts.settled  2\n" +
		"rows.succeeded        1\nattempts              2\nevents\n"
	if diff := cmp.Diff(want, r.out); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
}

// A time may be written in several ways.
func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000_000_000)
	for text, want := range map[string]int64{
		"1795818572681": 1795818572681, "2026-11-27": 1795737600000, "2026-11-27T20:29:32Z": 1795811372000,
		"2026-11-27T20:29:32+11:00": 1795771772000, "-2h": 999_992_800_000, "+90s": 1_000_000_090_000, "-5": -5,
	} {
		if got, err := parseTime(text, now); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "2026-13-01", "2h", "1.5"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// Requests carry arguments in path and body, and each call of several has its own key.
func TestRequestsOfTheCommands(t *testing.T) {
	t.Parallel()
	type call struct{ method, uri, key, body string }
	var calls []call
	server := newAPI(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1000)
		n, _ := r.Body.Read(body)
		calls = append(calls, call{r.Method, r.URL.RequestURI(), r.Header.Get("Idempotency-Key"), string(body[:n])})
		answer(`{}`)(w, r)
	}})
	for _, c := range []struct {
		args []string
		want []call
	}{
		{[]string{"invitations", "create", "a/b", "é", "--expires-at", "5"}, []call{
			{"POST", "/billing/sites/site/customers/invitations", "*", `{"customerReference":"a/b","expiresAt":5}`},
			{"POST", "/billing/sites/site/customers/invitations", "*", `{"customerReference":"é","expiresAt":5}`},
		}},
		{[]string{"batches", "retry", "2026/11 #7+é", "again"}, []call{
			{"POST", "/billing/sites/site/batches/2026%2F11%20%237+%C3%A9/retry", "", `{"batchReference":"again"}`},
		}},
		{[]string{"intents", "create", "990", "--idempotency-key", "k", "--line-items", `[{"itemId":"a"}]`}, []call{
			{"POST", "/checkout/site/payment-intent", "k",
				`{"amount":990,"lineItems":[{"itemId":"a"}],"qrCodeFormat":"text"}`},
		}},
		{[]string{"endpoints", "put", "default", "https://x/", "--events", "transactionStatus,batchSettled"}, []call{
			{"PUT", "/webhooks/endpoints/default", "", `{"events":["transactionStatus","batchSettled"],"url":"https://x/"}`},
		}},
		{[]string{"endpoints", "get"}, []call{{"GET", "/webhooks/endpoints/default", "", ""}}},
		{[]string{"events", "redeliver-all", "--status", "failed", "--from", "7"}, []call{
			{"POST", "/webhooks/events/redelivery", "", `{"from":7,"status":"failed"}`},
		}},
		{[]string{"logs", "list", "--limit", "1000", "--status", "4xx", "--method", "GET", "--path", "/a&"}, []call{
			{"GET", "/sandbox/requests?limit=1000&method=GET&path=%2Fa%26&status=4xx", "", ""},
		}},
		{[]string{"secret", "rotate"}, []call{{"POST", "/webhooks/secret/rotation", "", `{}`}}},
		{[]string{"clock", "advance", "90m"}, []call{{"POST", "/sandbox/clock", "", `{"advanceMs":5400000}`}}},
		{[]string{"sandbox", "signup", "ada", "--site", "other"}, []call{
			{"POST", "/sandbox/sites/other/customers/ada/signup", "", `{}`},
		}},
		{[]string{"api", "get", "/billing/sites/{siteId}/customers?limit=5"}, []call{
			{"GET", "/billing/sites/site/customers?limit=5", "", ""},
		}},
		{[]string{"api", "POST", "/x", "--data", `{"b": 1}`, "-H", "Idempotency-Key: k"}, []call{
			{"POST", "/x", "k", `{"b":1}`},
		}},
	} {
		calls = nil
		if r := svcctl(t.Context(), server.URL, c.args...); r.code != 0 {
			t.Errorf("%q: %+v", c.args, r)
			continue
		}
		keys := map[string]bool{}
		for i := range calls {
			if key := calls[i].key; i < len(c.want) && c.want[i].key == "*" && key != "" && !keys[key] {
				keys[key], calls[i].key = true, "*"
			}
		}
		if diff := cmp.Diff(c.want, calls, cmp.AllowUnexported(call{})); diff != "" {
			t.Errorf("%q (-want +called):\n%s", c.args, diff)
		}
	}
}
