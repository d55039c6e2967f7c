package rail

import (
	"net/http"
	"reflect"
	"testing"

	"partnerbilling/models"
)

var listed = []ListedDebit{
	{"a/b", Particulars{"agr-1", 100, "AUD"}, 1000},
	{"a", Particulars{"agr-2", models.MaxAmount, "NZD"}, 1001},
	{"é", Particulars{"agr-2", 1, "AUD"}, 1001},
}

// A page survives its answer in the contract.
func TestListReadsBack(t *testing.T) {
	t.Parallel()
	q := ListQuery{From: 1000, To: 2000, Limit: 3}
	for _, want := range []ListPage{
		{Debits: listed, More: true, CompleteFrom: 5, CompleteTo: 1900},
		{Debits: listed[:2], CompleteTo: 1002},
		{Debits: []ListedDebit{}, CompleteFrom: 1500, CompleteTo: 1600},
	} {
		rep := listReply(want)
		got, err := readList(q, rep.status, rep.body)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
	}
}

// Answers that break the contract are errors, so that no debit is skipped because of them.
func TestListRefusesAnswers(t *testing.T) {
	t.Parallel()
	entry := func(key, at string) string {
		return `{"key":"` + key + `","agreementId":"agr","amount":1,"currency":"AUD","debitedAt":` + at + `}`
	}
	one := entry("a", "1000")
	const bounds = `,"more":false,"completeFrom":0,"completeTo":1500}`
	for name, tt := range map[string]struct {
		status int
		body   string
	}{
		"not JSON":        {200, `<html>`},
		"another status":  {202, `{"debits":[]` + bounds},
		"an error":        {503, `{"error":{"code":"bankUnavailable"}}`},
		"no debits":       {200, `{"more":false,"completeFrom":0,"completeTo":1}`},
		"debits are null": {200, `{"debits":null` + bounds},
		"no more":         {200, `{"debits":[],"completeFrom":0,"completeTo":1}`},
		"no watermark":    {200, `{"debits":[],"more":false,"completeFrom":0}`},
		"no horizon":      {200, `{"debits":[],"more":false,"completeTo":0}`},
		"more after none": {200, `{"debits":[],"more":true,"completeFrom":0,"completeTo":1500}`},
		"too many": {
			200,
			`{"debits":[` + one + `,` + entry("b", "1000") + `,` + entry("c", "1000") + `]` + bounds,
		},
		"twice":              {200, `{"debits":[` + one + `,` + one + `]` + bounds},
		"behind the cursor":  {200, `{"debits":[` + entry("0", "1000") + `]` + bounds},
		"too early":          {200, `{"debits":[` + entry("a", "999") + `]` + bounds},
		"too late":           {200, `{"debits":[` + entry("a", "1400") + `]` + bounds},
		"past the watermark": {200, `{"debits":[` + one + `],"more":false,"completeFrom":0,"completeTo":1000}`},
		"no time": {
			200,
			`{"debits":[{"key":"a","agreementId":"agr","amount":1,"currency":"AUD"}]` + bounds,
		},
		"no amount": {
			200,
			`{"debits":[{"key":"a","agreementId":"agr","currency":"AUD","debitedAt":1000}]` + bounds,
		},
		"no agreement": {200, `{"debits":[{"key":"a","amount":1,"currency":"AUD","debitedAt":1000}]` + bounds},
		"no key": {
			200,
			`{"debits":[{"agreementId":"agr","amount":1,"currency":"AUD","debitedAt":1001}]` + bounds,
		},
		"a fraction": {
			200,
			`{"debits":[{"key":"a","agreementId":"agr","amount":1.5,"currency":"AUD","debitedAt":1000}]` + bounds,
		},
	} {
		page, err := readList(ListQuery{From: 1000, AfterKey: "0", To: 1400, Limit: 2}, tt.status, []byte(tt.body))
		if err == nil || len(page.Debits) > 0 || page.CompleteTo != 0 {
			t.Errorf("%s: read as %+v, %v", name, page, err)
		}
	}
	good := `{"debits":[` + one + `],"more":true,"completeFrom":0,"completeTo":1001,"later":1}`
	q := ListQuery{From: 1000, AfterKey: "0", To: 1400, Limit: 2}
	if page, err := readList(q, http.StatusOK, []byte(good)); err != nil || len(page.Debits) != 1 || !page.More {
		t.Errorf("%s is read as %+v, %v", good, page, err)
	}
}

func TestParseListQuery(t *testing.T) {
	t.Parallel()
	want := ListQuery{From: 5, AfterKey: "a/é&b=+ 🦆", To: 9, Limit: 500}
	if got, err := parseListQuery(want.values().Encode()); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, raw := range []string{
		"", "from=1&to=2", "from=1&limit=2", "to=1&limit=2", "from=1&to=2&limit=0", "from=1&to=2&limit=501",
		"from=1&from=1&to=2&limit=1", "from=1&to=2&limit=1&other=3", "from=a&to=2&limit=1", "from=-1&to=2&limit=1",
		"from=1.0&to=2&limit=1", "from=1&to=9223372036854775808&limit=1", "from=1&to=2&limit=1&afterKey=%00",
		"from=1&to=2&limit=1&afterKey=%zz", "from=1;to=2&limit=1",
	} {
		if q, err := parseListQuery(raw); err == nil {
			t.Errorf("%q is read as %+v", raw, q)
		}
	}
}

// Whatever a gateway answers, the reader moves forward by it, or not at all.
func FuzzReadList(f *testing.F) {
	for _, p := range []ListPage{
		{Debits: listed, More: true, CompleteTo: 1900}, {Debits: listed[:1], CompleteTo: 1001},
	} {
		f.Add(200, listReply(p).body)
	}
	f.Add(503, []byte(`{"error":{"code":"\ud800"}}`))
	f.Add(200, []byte(`{"debits":[],"more":false,"completeFrom":9e99,"completeTo":-1}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		q := ListQuery{From: 1000, To: 2000, Limit: 2}
		page, err := readList(q, status, body)
		if err != nil {
			return
		}
		if status != http.StatusOK || len(page.Debits) > q.Limit || page.More && len(page.Debits) == 0 {
			t.Errorf("HTTP %d %q is read as %+v", status, body, page)
		}
		for _, d := range page.Debits {
			if !q.Selects(d) || d.Particulars.validate() != nil {
				t.Errorf("%q is read as %+v", body, page)
			}
			q = q.After(d)
		}
	})
}
