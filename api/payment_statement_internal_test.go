package api

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// Each line of a statement leads to the next, down to the amount that is charged.
func TestStatement(t *testing.T) {
	coffee := models.LineItem{ItemID: "coffee", Quantity: 2, AmountPerUnit: 300, AmountSubtotal: 700,
		AddOns: &models.AddOns{Customizations: "oat milk"}}
	cake := models.LineItem{ItemID: "cake", Quantity: 1, AmountPerUnit: 300, AmountSubtotal: 300}
	discounts := []models.Discount{
		{LineItem: 1, Amount: 300, Reason: "birthday"}, {LineItem: 0, Amount: 50, Reason: "loyalty"},
	}
	for name, c := range map[string]struct {
		intent models.PaymentIntent
		want   []string
	}{
		"no line items": {models.PaymentIntent{Amount: 5}, nil},
		"open": {models.PaymentIntent{Amount: 1000, LineItems: []models.LineItem{coffee, cake}},
			[]string{"2 coffee (oat milk) 3.00 each +1.00: 7.00", "1 cake: 3.00", "To pay: 10.00"}},
		"other charges": {models.PaymentIntent{Amount: 1250, LineItems: []models.LineItem{cake}},
			[]string{"1 cake: 3.00", "Not itemised: 9.50", "To pay: 12.50"}},
		"a reduction": {models.PaymentIntent{Amount: 250, LineItems: []models.LineItem{cake}, State: models.IntentFinal},
			[]string{"1 cake: 3.00", "Reduction: \u22120.50", "Total: 2.50"}},
		"settled with discounts": {
			models.PaymentIntent{Amount: 1100, LineItems: []models.LineItem{coffee, cake}, State: models.IntentFinal,
				Status: models.TransactionSettled, Transaction: models.Transaction{Discounts: discounts}},
			[]string{"2 coffee (oat milk) 3.00 each +1.00: 7.00", "- loyalty: \u22120.50", "1 cake: 3.00",
				"- birthday: \u22123.00", "Not itemised: 1.00", "Before discounts: 11.00", "Discounts: \u22123.50", "Paid: 7.50"}},
		"declined with discounts": {
			models.PaymentIntent{Amount: 300, LineItems: []models.LineItem{coffee, cake}[1:], State: models.IntentFinal,
				Status: models.TransactionDeclined, Transaction: models.Transaction{Discounts: discounts[:0]}},
			[]string{"1 cake: 3.00", "Total: 3.00"}},
		"units that do not lead to the subtotal": {models.PaymentIntent{Amount: 5, LineItems: []models.LineItem{
			{ItemID: "x", Quantity: 1 << 52, AmountPerUnit: 1 << 52, AmountSubtotal: 5}}},
			[]string{"4503599627370496 x: 0.05", "To pay: 0.05"}},
	} {
		c.intent.Currency = "AUD"
		items, totals := statement(&c.intent)
		if diff := cmp.Diff(c.want, statementText(items, totals)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// statementText writes a statement as lines without the currency.
func statementText(items []web.PaymentItem, totals []web.PaymentLine) []string {
	var lines []string
	line := func(parts ...string) {
		lines = append(lines, strings.ReplaceAll(strings.Join(parts, ""), "AUD\u00a0", ""))
	}
	for _, i := range items {
		about := ""
		if i.Detail != "" {
			about += " (" + i.Detail + ")"
		}
		if i.Unit != "" {
			about += " " + i.Unit + " each"
		}
		if i.AddOns != "" {
			about += " +" + i.AddOns
		}
		line(strconv.FormatInt(i.Quantity, 10), " ", i.Name, about, ": ", i.Amount)
		for _, d := range i.Discounts {
			line("- ", d.Label, ": ", d.Amount)
		}
	}
	for _, t := range totals {
		line(t.Label, ": ", t.Amount)
	}
	return lines
}
