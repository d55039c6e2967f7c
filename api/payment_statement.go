package api

import (
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// statement returns the lines that show what a payment is for: the line items with their discounts,
// and the totals. The totals lead from the sum of the items to the amount to pay, or the amount
// paid. Without line items there are no lines.
func statement(p *models.PaymentIntent) ([]web.PaymentItem, []web.PaymentLine) {
	if len(p.LineItems) == 0 {
		return nil, nil
	}
	money := func(a models.Amount) string { return web.Money(int64(a), p.Currency) }
	items := make([]web.PaymentItem, len(p.LineItems))
	var listed, off models.Amount // the sum of the items, and of the discounts
	for i, l := range p.LineItems {
		items[i] = paymentItem(&l, money)
		listed += l.AmountSubtotal
	}
	for _, d := range grantedDiscounts(p) {
		items[d.LineItem].Discounts = append(items[d.LineItem].Discounts,
			web.PaymentLine{Label: d.Reason, Amount: money(-d.Amount)})
		off += d.Amount
	}
	var totals []web.PaymentLine
	switch rest := p.Amount - listed; {
	case rest > 0:
		totals = append(totals, web.PaymentLine{Label: "Not itemised", Amount: money(rest)})
	case rest < 0:
		totals = append(totals, web.PaymentLine{Label: "Reduction", Amount: money(rest)})
	}
	if off > 0 {
		totals = append(totals, web.PaymentLine{Label: "Before discounts", Amount: money(p.Amount)},
			web.PaymentLine{Label: "Discounts", Amount: money(-off)})
	}
	return items, append(totals, web.PaymentLine{Label: totalLabel(p), Amount: money(p.Amount - off)})
}

// grantedDiscounts returns the discounts of a payment that is pending or settled, else nil.
func grantedDiscounts(p *models.PaymentIntent) []models.Discount {
	if p.State == models.IntentPending || p.Status == models.TransactionSettled {
		return p.Transaction.Discounts
	}
	return nil
}

// totalLabel names the last line of a statement.
func totalLabel(p *models.PaymentIntent) string {
	switch {
	case p.Status == models.TransactionSettled:
		return "Paid"
	case p.State == models.IntentFinal:
		return "Total"
	default:
		return "To pay"
	}
}

// paymentItem describes a line item. Partners do not state the price of the add-ons, so it is
// computed: the subtotal less the price of the units.
func paymentItem(l *models.LineItem, money func(models.Amount) string) web.PaymentItem {
	item := web.PaymentItem{Name: l.ItemID, Quantity: l.Quantity, Amount: money(l.AmountSubtotal)}
	if l.AddOns != nil {
		item.Detail = l.AddOns.Customizations
	}
	if l.AmountPerUnit > l.AmountSubtotal/models.Amount(l.Quantity) {
		return item // the units alone cost more than the subtotal
	}
	if l.Quantity > 1 {
		item.Unit = money(l.AmountPerUnit)
	}
	if addOns := l.AmountSubtotal - l.AmountPerUnit*models.Amount(l.Quantity); addOns > 0 {
		item.AddOns = money(addOns)
	}
	return item
}
