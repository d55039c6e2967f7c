package models_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models"
)

func intentOf(amount models.Amount, subtotals ...models.Amount) *models.PaymentIntent {
	p := &models.PaymentIntent{Amount: amount}
	for _, s := range subtotals {
		p.LineItems = append(p.LineItems, models.LineItem{ItemID: "i", Quantity: 1, AmountPerUnit: s,
			AmountSubtotal: s})
	}
	return p
}

func TestCharge(t *testing.T) {
	off := func(line int, amount models.Amount) models.Discount {
		return models.Discount{LineItem: line, Amount: amount, Reason: "r"}
	}
	for name, tt := range map[string]struct {
		intent    *models.PaymentIntent
		discounts []models.Discount
		charge    models.Amount
		fault     string // index and field
	}{
		"none":         {intentOf(500), nil, 500, ""},
		"one":          {intentOf(500, 500), []models.Discount{off(0, 1)}, 499, ""},
		"a whole line": {intentOf(500, 200, 300), []models.Discount{off(1, 300)}, 200, ""},
		"everything": {intentOf(500, 200, 300), []models.Discount{off(1, 300), off(0, 199), off(0, 1)}, 0,
			""},
		"more than its line": {intentOf(500, 200, 300), []models.Discount{off(0, 201)}, 0, "0 amount"},
		"together more than a line": {intentOf(500, 200, 300), []models.Discount{off(0, 150), off(1, 1), off(0, 51)}, 0,
			"2 amount"},
		"more than the amount": {intentOf(100, 200), []models.Discount{off(0, 101)}, 0, "0 amount"},
		"together more": {intentOf(100, 200, 200), []models.Discount{off(0, 60), off(1, 41)}, 0,
			"1 amount"},
		"no such line":              {intentOf(500, 500), []models.Discount{off(1, 1)}, 0, "0 lineItemIndex"},
		"no lines":                  {intentOf(500), []models.Discount{off(0, 1)}, 0, "0 lineItemIndex"},
		"a line before the first":   {intentOf(500, 500), []models.Discount{off(-1, 1)}, 0, "0 lineItemIndex"},
		"nothing off":               {intentOf(500, 500), []models.Discount{off(0, 0)}, 0, "0 amount"},
		"less than nothing off":     {intentOf(500, 500), []models.Discount{off(0, -1)}, 0, "0 amount"},
		"of a line that costs zero": {intentOf(500, 0), []models.Discount{off(0, 1)}, 0, "0 amount"},
		"the largest amount, gone": {intentOf(models.MaxAmount, models.MaxAmount),
			[]models.Discount{off(0, models.MaxAmount)}, 0, ""},
		"beyond the largest, of two": {intentOf(models.MaxAmount, models.MaxAmount, 5),
			[]models.Discount{off(0, models.MaxAmount), off(1, 1)}, 0, "1 amount"},
	} {
		t.Run(name, func(t *testing.T) {
			charge, err := tt.intent.Charge(tt.discounts)
			var fault *models.DiscountError
			got := ""
			if errors.As(err, &fault) {
				got = string(rune('0'+fault.Index)) + " " + fault.Field
			}
			if charge != tt.charge || got != tt.fault {
				t.Errorf("charge %d, %v", charge, err)
			}
		})
	}
}

// TestChargeToTheCent compares the charge with a plain sum of cents.
func TestChargeToTheCent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subtotals := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) models.Amount {
			return models.Amount(rapid.Int64Range(0, 50).Draw(t, "subtotal"))
		}), 0, 4).Draw(t, "lines")
		intent := intentOf(models.Amount(rapid.Int64Range(1, 120).Draw(t, "amount")), subtotals...)
		var discounts []models.Discount
		ofLine, sum, valid := make([]models.Amount, len(subtotals)), models.Amount(0), true
		for range rapid.IntRange(0, 6).Draw(t, "discounts") {
			d := models.Discount{
				LineItem: rapid.IntRange(-1, len(subtotals)).Draw(t, "line"),
				Amount:   models.Amount(rapid.Int64Range(0, 30).Draw(t, "off")),
			}
			discounts = append(discounts, d)
			if d.LineItem < 0 || d.LineItem == len(subtotals) || d.Amount < 1 {
				valid = false
				continue
			}
			ofLine[d.LineItem] += d.Amount
			sum += d.Amount
		}
		for i, s := range subtotals {
			valid = valid && ofLine[i] <= s
		}
		valid = valid && sum <= intent.Amount
		charge, err := intent.Charge(discounts)
		if (err == nil) != valid || valid && charge != intent.Amount-sum {
			t.Fatalf("charge %d, %v; want %d, valid %t", charge, err, intent.Amount-sum, valid)
		}
	})
}

func TestIntentCode(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		code := models.NewIntentCode()
		if !models.ValidIntentCode(code) || seen[code] {
			t.Fatalf("code %q", code)
		}
		seen[code] = true
	}
	for _, s := range []string{"", "ABCDEFGHIJKLMNO", "ABCDEFGHIJKLMNOPQ", "abcdefghijklmnop", "ABCDEFGHIJKLMNO1",
		"ABCDEFGHIJKLMNO=", "ABCDEFGHIJKLMNÖ"} {
		if models.ValidIntentCode(s) {
			t.Errorf("%q is a code", s)
		}
	}
}
