package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/models"
)

// refreshes is the part of a page that loads it again without JavaScript.
const refreshes = `<noscript><meta http-equiv="refresh"`

func TestPaymentPage(t *testing.T) {
	c := newPaying(t)
	id, code := c.intent(t)
	path := "/P/" + code
	for range 3 {
		checkPage(t, c.Get(path), 200, "Pay AUD\u00a010.00", "Harbour Power", "North Quay", "order 7", "2 × coffee",
			"oat milk",
			"AUD\u00a07.00", "<form", "Sandbox", "Monday 21 September 2026")
		c.Send(http.MethodHead, path, nil).Expect(200)
		c.Get(path + "?utm_source=mail&x=%zz").Expect(200)
	}
	for _, form := range []string{"", "action=pay", "action=pay&behaviour=no", "action=no&behaviour=pays", "%zz"} {
		checkPage(t, c.browser().Post(path, form), 400, "Choose how the account should behave", "<form")
	}
	if got := c.getIntent(id); got.State != "created" {
		t.Fatalf("looking at the page made it %s", got.State)
	}
	done := c.browser().Post(path, "action=pay&behaviour=slow").Expect(303)
	if got := done.Header.Get("Location"); got != path {
		t.Errorf("it leads to %q", got)
	}
	pending := c.Get(path)
	checkPage(t, pending, 200, "on its way")
	if !strings.Contains(string(pending.Body), refreshes) || !strings.Contains(string(pending.Body), "data-poll=") {
		t.Error("the page of a payment under way does not follow it")
	}
	checkPage(t, c.browser().Post(path, "action=pay&behaviour=pays"), 200, "on its way") // the form is sent twice
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionSettled})
	paid := c.Get(path)
	checkPage(t, paid, 200, "You have paid AUD\u00a010.00")
	if body := string(paid.Body); strings.Contains(body, "<form") || strings.Contains(body, "discounts") ||
		strings.Contains(body, refreshes) || strings.Contains(body, "data-poll=") {
		t.Errorf("the page of a paid one:\n%s", body)
	}
}

func TestPaymentPageEndings(t *testing.T) {
	c := newPaying(t)
	_, code := c.intent(t)
	c.browser().Post("/P/"+code, "action=decline").Expect(303)
	claimed := c.claim(t)
	if got := c.behaviour(t, claimed); got != models.BehaviourDeclines {
		t.Errorf("the account is %q", got)
	}
	c.finish(t, claimed, models.TransactionResult{Status: models.TransactionDeclined,
		Reason: models.OutcomeDeclinedByCustomer})
	checkPage(t, c.Get("/P/"+code), 200, "The payment was declined")

	_, code = c.intent(t)
	c.finish(t, c.pay(t, code), models.TransactionResult{Status: models.TransactionFailed})
	checkPage(t, c.Get("/P/"+code), 200, "The payment did not work")

	id, code := c.intent(t)
	c.app.Post(transactions(code),
		`{"customerId":"c","agreementId":"a","discounts":[{"lineItemIndex":0,"amount":700,"reason":"r"},{"lineItemIndex":1,"amount":300,"reason":"r"}]}`).Expect(202)
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionSettled})
	checkPage(t, c.Get("/P/"+code), 200, "You have paid AUD\u00a00.00", "Without discounts it was AUD\u00a010.00")
	if got := c.getIntent(id); got.AmountPaid == nil || *got.AmountPaid != 0 {
		t.Errorf("%+v", got)
	}

	id, code = c.intent(t)
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	checkPage(t, c.Get("/P/"+code), 410, "This payment was cancelled")
	checkPage(t, c.browser().Post("/P/"+code, "action=pay&behaviour=pays"), 410, "This payment was cancelled")
	_, code = c.intent(t)
	c.advance(t, 15*time.Minute)
	checkPage(t, c.Get("/P/"+code), 410, "This payment has expired")
}

// behaviour returns that of the account that pays a transaction.
func (c *paying) behaviour(t *testing.T, claimed models.ClaimedTransaction) (b models.Behaviour) {
	t.Helper()
	check(t, c.store.DB().NewRaw("SELECT behaviour FROM sandbox_accounts WHERE agreement_id = ?",
		claimed.Account.AgreementID).Scan(t.Context(), &b))
	return b
}

// The page links back to the partner once the payment has ended, and not before.
func TestPaymentPageLeadsBack(t *testing.T) {
	c := newPaying(t)
	create := func() (id, code string) {
		made := dataOf[createdIntent](c.Post(c.intents(""),
			`{"amount":5,"qrCodeFormat":"text","returnUrl":"https://shop.example:8443/back?a=1&b='x'"}`).Expect(201))
		return made.PaymentIntentID, strings.TrimPrefix(made.QRCode, "HTTPS://BILLING.EXAMPLE/P/")
	}
	const back = `<a class="button primary" href="https://shop.example:8443/back?a=1&amp;b=%27x%27" ` +
		`rel="noreferrer">Back to shop.example:8443</a>`
	leadsBack := func(code string, want bool) {
		t.Helper()
		if body := string(c.Get("/P/" + code).Body); strings.Contains(body, back) != want ||
			strings.Contains(body, "shop.example") != want {
			t.Errorf("a way back: %v\n%s", !want, body)
		}
	}
	for _, status := range models.TransactionStatuses {
		id, code := create()
		leadsBack(code, false)
		switch status {
		case models.TransactionCancelled:
			c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
		case models.TransactionExpired:
			c.advance(t, 15*time.Minute)
		default:
			claimed := c.pay(t, code)
			leadsBack(code, false)
			c.finish(t, claimed, models.TransactionResult{Status: status})
		}
		leadsBack(code, true)
	}
}

func TestPaymentPageErrors(t *testing.T) {
	c := newPaying(t)
	_, code := c.intent(t)
	for _, path := range []string{"/P/x", "/P/ABCDEFGHIJKLMNOP", "/P/" + strings.ToLower(code), "/P/" + code + "A",
		"/P/%ff"} {
		checkPage(t, c.Get(path), 404, "We do not know this link")
		checkPage(t, c.browser().Post(path, "action=pay&behaviour=pays"), 404, "We do not know this link")
	}
	c.Get("/p/"+code).Refused(404, "requests:not-found")
	checkPage(t, c.Post("/P/"+code, `{"action":"pay"}`), 415)
	for origin, status := range map[string]int{"https://evil.example": 400, publicURL: 303} {
		if got := c.browser().With("Origin", origin).
			Post("/P/"+code, url.Values{"action": {"decline"}}.Encode()); got.Status != status {
			t.Errorf("from %s: status %d, want %d", origin, got.Status, status)
		}
	}
}

func TestPaymentPageInProduction(t *testing.T) {
	b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox, cfg.AppLink = nil, appLink(t) })
	id, code := b.intent(t)
	page := b.Get("/P/" + code)
	checkPage(t, page, 200, `href="https://app.example/open/P/`+code+`"`, "Pay in the app")
	if body := string(page.Body); strings.Contains(body, "<form") || strings.Contains(body, "Sandbox") {
		t.Errorf("the page plays the app:\n%s", body)
	}
	b.browser().Post("/P/"+code, "action=pay&behaviour=pays").Refused(405, "requests:method-not-allowed")
	complains(t, b.Post(b.intents(""), `{"amount":5,"returnUrl":"http://shop.example"}`), 400,
		"returnUrl must be an https URL")
	if got := b.getIntent(id); got.State != "created" {
		t.Errorf("it is %s", got.State)
	}
	bare := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	_, code = bare.intent(t)
	checkPage(t, bare.Get("/P/"+code), 200, "Scan the code with the app")
}
