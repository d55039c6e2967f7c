package rail

import (
	"slices"
	"testing"

	"partnerbilling/models"
)

// Every result survives its answer in the contract.
func TestRepliesReadBack(t *testing.T) {
	finals := []Result{{Status: Succeeded}, {Status: Cancelled}}
	for _, reason := range []Reason{
		InsufficientFunds, AccountUnavailable, LimitExceeded, DeclinedByCustomer, Declined,
	} {
		finals = append(finals, Result{Status: Refused, Reason: reason})
	}
	d := Debit{Key: "a/b", AgreementID: "agr", Amount: models.MaxAmount, Currency: "AUD"}
	check := func(op operation, read func(key string, status int, body []byte) Result, results []Result) {
		for _, want := range results {
			rep := replyTo("a/b", want)
			got := read("a/b", rep.status, rep.body)
			if got.Status != want.Status || got.Reason != want.Reason || got.Held != want.Held {
				t.Errorf("%s: %+v is read as %+v", op, want, got)
			}
			if other := read("another", rep.status, rep.body); rep.status == 200 && other.Status != Unknown {
				t.Errorf("%s: the answer about another key is read as %+v", op, other)
			}
		}
	}
	check(opDebit, func(key string, status int, body []byte) Result {
		d := d
		d.Key = key
		return readDebitAnswer(d, status, body)
	}, append(slices.Clone(finals),
		Result{}, Result{Status: Unavailable}, Result{Status: Conflict}, Result{Status: Invalid}))

	held := []Result{{Held: d.Particulars()}} // not decided yet
	for _, r := range finals {
		r.Held = d.Particulars()
		held = append(held, r)
	}
	for op, others := range map[operation][]Result{
		opLookup: {{}, {Status: Cancelled}, {Status: NotFound}},
		opCancel: {{}, {Status: Cancelled}},
	} {
		check(op, func(key string, status int, body []byte) Result {
			return readAnswer(op, key, status, body)
		}, append(slices.Clone(held), others...))
	}
}

// The answers with particulars have exactly these bytes.
func TestReplyBytes(t *testing.T) {
	held := Particulars{"agr-81", 1250, "AUD"}
	for _, tt := range []struct {
		r    Result
		want string
	}{
		{Result{Status: Succeeded, Held: held},
			`{"key":"k","status":"succeeded","agreementId":"agr-81","amount":1250,"currency":"AUD"}`},
		{
			Result{Status: Refused, Reason: Declined, Held: held},
			`{"key":"k","status":"refused","agreementId":"agr-81","amount":1250,"currency":"AUD","reason":"declined"}`,
		},
		{Result{Status: Cancelled}, `{"key":"k","status":"cancelled"}`},
		{Result{Held: held}, `{"key":"k","status":"pending","agreementId":"agr-81","amount":1250,"currency":"AUD"}`},
	} {
		if got := replyTo("k", tt.r); got.status != 200 || string(got.body) != tt.want {
			t.Errorf("%+v: HTTP %d %s, want 200 %s", tt.r, got.status, got.body, tt.want)
		}
	}
}

func TestConflictsWith(t *testing.T) {
	d := Debit{Key: "k", AgreementID: "agr", CustomerID: "cus", Amount: 100, Currency: "AUD"}
	for _, tt := range []struct {
		held Particulars
		want bool
	}{
		{Particulars{}, false},
		{Particulars{"agr", 100, "AUD"}, false},
		{Particulars{"agr", 101, "AUD"}, true},
		{Particulars{"Agr", 100, "AUD"}, true},
		{Particulars{"agr", 100, "NZD"}, true},
	} {
		if got := tt.held.ConflictsWith(d); got != tt.want {
			t.Errorf("%+v conflicts: %t, want %t", tt.held, got, tt.want)
		}
	}
}

func TestStatusNames(t *testing.T) {
	for s := range Status(StatusCount) {
		if s.String() == "" || s.Final() != slices.Contains([]Status{Succeeded, Refused, Cancelled, Conflict}, s) {
			t.Errorf("status %d: %q, final %t", s, s, s.Final())
		}
	}
	if got := Status(99).String(); got != "status(99)" {
		t.Errorf("status 99 is %q", got)
	}
}

func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"key":"k","status":"succeeded"}`, `{"key":"k","status":"refused","reason":"declined"}`,
		`{"error":{"code":"bankUnavailable"}}`,
		`{"error":{"code":"keyNotFound","message":"\ud800"}}`, `{"error":null}`, `[]`,
		`{"key":"k","status":"cancelled"}x`,
		`{"error":{"code":"keyConflict"}}`, `{"error":{"code":"invalidRequest"}}`,
		`{"key":"k","status":"succeeded","agreementId":"agr","amount":100,"currency":"AUD"}`,
		`{"key":"k","status":"refused","reason":"other","agreementId":"agr","amount":101,"currency":"AUD"}`,
		`{"key":"k","status":"pending","agreementId":"agr","amount":9007199254740991,"currency":"NZD"}`,
		`{"key":"k","status":"cancelled","agreementId":"\u0000","amount":1,"currency":"AUD"}`,
		`{"key":"k","status":"succeeded","agreementId":"agr","amount":-0,"currency":"AUD"}`,
		`{"key":"k","status":"succeeded","agreementId":"agr","amount":1e2,"currency":"AUD"}`,
		`{"key":"k","status":"succeeded","agreementId":null,"amount":100}`,
	} {
		for _, status := range []int{200, 202, 400, 404, 409, 503} {
			f.Add(status, []byte(seed))
		}
	}
	d := Debit{Key: "k", AgreementID: "agr", Amount: 100, Currency: "AUD"}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		checkAnswer(t, opDebit, status, readDebitAnswer(d, status, body))
		checkAnswer(t, opLookup, status, readAnswer(opLookup, "k", status, body))
		checkAnswer(t, opCancel, status, readAnswer(opCancel, "k", status, body))
	})
}

// checkAnswer checks the result of an answer against the tables of the contract.
func checkAnswer(t *testing.T, op operation, status int, r Result) {
	t.Helper()
	from := map[Status][]int{
		Succeeded: {200}, Refused: {200}, Cancelled: {200}, Conflict: {200, 202, 409}, Invalid: {400},
		Unavailable: {401, 429, 503}, NotFound: {404},
	}
	if from[r.Status] != nil && !slices.Contains(from[r.Status], status) {
		t.Errorf("%s: HTTP %d read as %+v", op, status, r)
	}
	ofDebit := slices.Contains([]Status{Conflict, Invalid, Unavailable}, r.Status)
	if ofDebit && op != opDebit || r.Status == NotFound && op != opLookup {
		t.Errorf("%s: read as %+v", op, r)
	}
	if (r.Reason != "") != (r.Status == Refused) || r.Status == Unknown && r.Detail == "" {
		t.Errorf("%s: read as %+v", op, r)
	}
	holds := r.Held != Particulars{}
	if holds && (op == opDebit || r.Status == NotFound || r.Held.validate() != nil) ||
		!holds && op != opDebit && (r.Status == Succeeded || r.Status == Refused) {
		t.Errorf("%s: read as %+v", op, r)
	}
}
