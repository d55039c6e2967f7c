package rail

import (
	"slices"
	"testing"
)

// TestRepliesReadBack takes every result through the contract and back.
func TestRepliesReadBack(t *testing.T) {
	finals := []Result{{Status: Succeeded}, {Status: Cancelled}}
	for _, why := range []Reason{InsufficientFunds, AccountUnavailable, LimitExceeded, DeclinedByCustomer, Declined} {
		finals = append(finals, Result{Status: Refused, Reason: why})
	}
	all := map[operation][]Result{
		opDebit:  append(slices.Clone(finals), Result{}, Result{Status: Unavailable}, Result{Status: Refused, Reason: KeyReused}),
		opLookup: append(slices.Clone(finals), Result{}, Result{Status: NotFound}),
		opCancel: append(slices.Clone(finals), Result{}),
	}
	for op, results := range all {
		for _, want := range results {
			rep := replyTo("a/b", want)
			got := readAnswer(op, "a/b", rep.status, rep.body)
			if got.Status != want.Status || got.Reason != want.Reason {
				t.Errorf("%s: %v came back as %v", op, want, got)
			}
			if other := readAnswer(op, "another", rep.status, rep.body); rep.status == 200 && other.Status != Unknown {
				t.Errorf("%s: the answer about another key was read as %v", op, other)
			}
		}
	}
}

func TestStatusNames(t *testing.T) {
	for s := range Status(len(statusNames)) {
		if s.String() == "" || s.Final() != slices.Contains([]Status{Succeeded, Refused, Cancelled}, s) {
			t.Errorf("status %d: %q, final %t", s, s, s.Final())
		}
	}
	if got := Status(99).String(); got != "status(99)" {
		t.Errorf("status 99 is %q", got)
	}
}

// FuzzReadAnswer looks for an answer that is read as more than it says.
func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"key":"k","status":"succeeded"}`, `{"key":"k","status":"refused","reason":"declined"}`, `{"error":{"code":"bankUnavailable"}}`,
		`{"error":{"code":"keyNotFound","message":"\ud800"}}`, `{"error":null}`, `[]`, `{"key":"k","status":"cancelled"}x`,
	} {
		for _, status := range []int{200, 202, 400, 404, 409, 503} {
			f.Add(status, []byte(seed))
		}
	}
	ops := []operation{opDebit, opLookup, opCancel}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		for _, op := range ops {
			r := readAnswer(op, "k", status, body)
			switch r.Status {
			case Unknown:
				if r.Detail == "" {
					t.Errorf("%s: unknown without a detail", op)
				}
			case Succeeded, Cancelled:
				if status != 200 {
					t.Errorf("%s: HTTP %d read as %v", op, status, r)
				}
			case Refused:
				if status != 200 && op != opDebit {
					t.Errorf("%s: HTTP %d read as %v", op, status, r)
				}
			case Unavailable:
				if op != opDebit {
					t.Errorf("%s: read as %v", op, r)
				}
			case NotFound:
				if op != opLookup {
					t.Errorf("%s: read as %v", op, r)
				}
			}
			if (r.Reason != "") != (r.Status == Refused) {
				t.Errorf("%s: %v with reason %q", op, r.Status, r.Reason)
			}
		}
	})
}
