package rail

import (
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// A debit that the gateway accepts is the debit that the service sends.
func FuzzDebitBody(f *testing.F) {
	const ids = `,"organisationId":"org_01932c07-0000-7000-8000-000000000001",` +
		`"siteId":"site_01932c07-0000-7000-8000-000000000002"}`
	for _, seed := range []string{
		`{"key":"r1_a","agreementId":"agr","customerId":"cus","amount":5,"currency":"AUD"` + ids,
		`{"key":"r1_a","key":"r1_b","agreementId":"agr","customerId":"cus","amount":5,"currency":"AUD"` + ids,
		`{"key":"` + "\xff" + `","agreementId":"agr","customerId":"cus","amount":5,"currency":"AUD"` + ids,
		`{"key":"k","agreementId":"agr","customerId":"cus","amount":5.0,"currency":"aud"` + ids, `{}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b debitBody
		if json.Unmarshal(body, &b) != nil {
			return
		}
		d := Debit(b)
		if d.Validate() != nil {
			return
		}
		if !utf8.Valid(body) || d.Amount < 1 {
			t.Errorf("%q is accepted as %+v", body, d)
		}
		sent, err := json.Marshal(debitBody(d))
		var again debitBody
		if err != nil || json.Unmarshal(sent, &again) != nil || again != b {
			t.Errorf("%q: %s, %v", body, sent, err)
		}
	})
}
