package web_test

import (
	"testing"

	"partnerbilling/api/web"
)

func TestMoney(t *testing.T) {
	for cents, want := range map[int64]string{
		-5: "\u2212AUD\u00a00.05",
		0:  "AUD\u00a00.00", 5: "AUD\u00a00.05", 99: "AUD\u00a00.99", 100: "AUD\u00a01.00", 99999: "AUD\u00a0999.99",
		100000: "AUD\u00a01,000.00", 123456789: "AUD\u00a01,234,567.89",
		9007199254740991: "AUD\u00a090,071,992,547,409.91",
	} {
		if got := web.Money(cents, "AUD"); got != want {
			t.Errorf("%d: %q, want %q", cents, got, want)
		}
	}
}

func TestPaymentPagesEscapeNames(t *testing.T) {
	const evil = `</title><script>alert(1)</script>"'&`
	for _, state := range []web.PaymentState{
		web.PaymentOpen, web.PaymentPending, web.PaymentPaid, web.PaymentDeclined, web.PaymentFailed,
		web.PaymentCancelled, web.PaymentExpired,
	} {
		for _, sandbox := range []bool{true, false} {
			checkSafe(t, web.Payment{
				Hosted: hostedBy(evil, sandbox), State: state, Amount: evil, Paid: evil, OrderID: evil, Code: "C",
				Items: []web.PaymentItem{{Name: evil, Quantity: 1, Detail: evil, Unit: evil, AddOns: evil, Amount: evil,
					Discounts: []web.PaymentLine{{Label: evil, Amount: evil}}}},
				Totals: []web.PaymentLine{{Label: evil, Amount: evil}}, Receipt: evil,
			})
		}
	}
}
