package api_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/docs"
	"partnerbilling/api/web/webtest"
	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// paymentViews makes a payment intent for each state of the payment page.
func (c *paying) paymentViews(t *testing.T) []webtest.View {
	t.Helper()
	var views []webtest.View
	alike := []string{"payment pending", "payment Failed", "payment cancelled", "payment unknown"}
	add := func(name, code, text string) {
		views = append(views, webtest.View{
			Name: name, Path: "/P/" + code, Text: text, Alike: slices.Contains(alike, name),
		})
	}
	_, code := c.intent(t)
	add("payment created", code, "Pay AUD")
	_, code = c.intent(t)
	c.pay(t, code)
	add("payment pending", code, "on its way")
	for status, text := range map[models.TransactionStatus]string{
		models.TransactionSettled: "Paid", models.TransactionDeclined: "declined",
		models.TransactionFailed: "did not work",
	} {
		code := c.ended(t, party, models.TransactionResult{Status: status})
		add("payment "+string(status), code, text)
	}
	code = c.ended(t, `{"customerId":"c","agreementId":"a","discounts":[
		{"lineItemIndex":0,"amount":150,"reason":"loyalty"},
		{"lineItemIndex":0,"amount":50,"reason":"happy hour"},{"lineItemIndex":1,"amount":300,"reason":"free cake"}]}`,
		models.TransactionResult{Status: models.TransactionSettled})
	add("payment with discounts", code, "Paid")
	id, code := c.intent(t)
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	add("payment cancelled", code, "cancelled")
	add("payment unknown", "ABCDEFGHIJKLMNOP", "We do not know this link")
	return views
}

// ended returns the code of a payment intent with a way back, whose payment has a result.
func (c *paying) ended(t *testing.T, payment string, result models.TransactionResult) string {
	t.Helper()
	made := dataOf[createdIntent](c.Post(c.intents(""), `{"amount":1000,"orderId":"order 7","qrCodeFormat":"text",
		"returnUrl":"https://shop.example/orders/7","lineItems":[
		{"itemId":"flat white","quantity":2,"amountPerUnit":300,"amountSubtotal":700,
			"addOns":{"customizations":"oat milk"}},
		{"itemId":"cake","quantity":1,"amountPerUnit":300,"amountSubtotal":300}]}`).Expect(201))
	code := made.QRCode[strings.LastIndex(made.QRCode, "/")+1:]
	c.app.Post(transactions(code), payment).Expect(202)
	c.finish(t, c.claim(t), result)
	return code
}

// signupViews makes an invitation for each state of the sign-up page.
func (b *billing) signupViews(t *testing.T) []webtest.View {
	t.Helper()
	linked, revoked := b.invite(t, "linked"), b.invite(t, "revoked")
	b.browser().Post(linked, "action=accept&behaviour=pays").Expect(303)
	b.Post(b.customer("revoked", "/revocation"), nil).Expect(200)
	return []webtest.View{
		{Name: "signup invited", Path: b.invite(t, "invited"), Text: "Invitation from Harbour Power"},
		{Name: "signup linked", Path: linked, Text: "You are signed up", Alike: true},
		{Name: "signup revoked", Path: revoked, Text: "withdrawn", Alike: true},
		{Name: "signup unknown", Path: "/signup/unknown", Text: "We do not know this link", Alike: true},
	}
}

// expiredViews makes an expired payment intent and an expired invitation.
func (b *billing) expiredViews(t *testing.T) []webtest.View {
	t.Helper()
	_, code := b.intent(t)
	signup := b.invite(t, "late")
	b.advance(t, week)
	return []webtest.View{
		{Name: "payment Expired", Path: "/P/" + code, Text: "expired", Alike: true},
		{Name: "signup expired", Path: signup, Text: "expired", Alike: true},
	}
}

// offers makes the pages at which a customer decides.
func (b *billing) offers(t *testing.T, suffix string) []webtest.View {
	t.Helper()
	_, code := b.intent(t)
	return []webtest.View{
		{Name: "payment in " + suffix, Path: "/P/" + code, Text: "Pay AUD", Alike: true},
		{Name: "signup in " + suffix, Path: b.invite(t, suffix), Text: "Invitation from Harbour Power", Alike: true},
	}
}

// documentationViews lists the guides and their index.
func documentationViews(t *testing.T) []webtest.View {
	t.Helper()
	views := []webtest.View{{Name: "docs", Path: docs.Path, Text: "Guides"}}
	index := docs.Path + "/guides/"
	d, err := docs.New(nil)
	check(t, err)
	for _, m := range regexp.MustCompile(`href="`+index+`([a-z-]+)"`).FindAllSubmatch(d.Index(), -1) {
		view := webtest.View{Name: "guide " + string(m[1]), Path: index + string(m[1]), Alike: len(views) > 1}
		if !slices.ContainsFunc(views, func(v webtest.View) bool { return v.Path == view.Path }) {
			views = append(views, view)
		}
	}
	return views
}

// referenceViews lists the API reference with its parts closed and open.
func referenceViews() []webtest.View {
	view := func(name string, act func(*webtest.Tab)) webtest.View {
		return webtest.View{
			Name: "API reference" + name, Path: docs.Path + "/reference", Text: "Partner Billing and Checkout",
			Act: act,
		}
	}
	return []webtest.View{
		view("", nil),
		view(" with operations", func(b *webtest.Tab) {
			b.ClickUntil(`//button[@aria-label="Show more batches endpoints"]`,
				`//main//h3[contains(., "Submit a batch")]`)
			b.ClickUntil(`//button[contains(., "Show Child Attributes")]`,
				`//button[contains(., "Hide Child Attributes")]`)
			response := `//button[contains(@class, "parameter-item-trigger")]`
			b.ClickUntil(response, response+`[@aria-expanded="true"]`)
		}),
		view(" with a response", func(b *webtest.Tab) {
			const test = `//button[contains(., "/livez") and contains(., "Test Request")]`
			const send = `//button[contains(., "Send get request")]`
			b.ClickUntil(`//button[@aria-label="Show more service endpoints"]`, test)
			b.ClickUntil(test, send)
			b.ClickUntil(send, `//*[normalize-space(.)="200 OK"]`)
		}),
		view(" with the menu", openMenu),
		view(" with a search", func(b *webtest.Tab) {
			openMenu(b)
			const found = `//*[@role="option" and contains(., "Get an access token")]`
			b.ClickUntil(`//button[contains(., "Open Search")]`, `//input[@role="combobox"]`)
			b.Keys("token")
			b.ClickUntil(`//input[@role="combobox"]`, found)
		}),
	}
}

// openMenu opens the API reference's menu on a phone.
func openMenu(b *webtest.Tab) {
	b.Look(390, "light")
	b.ClickUntil(`//button[contains(., "Open Menu")]`, `//button[contains(., "Close Menu")]`)
}

// Every public page in every state passes the checks of accessibility and layout, without an error
// in the browser.
func TestPagesInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a long walk through pages")
	}
	t.Parallel()
	browser := webtest.Start(t)
	check := func(c *apitest.Client, views []webtest.View) {
		t.Helper()
		webtest.CheckAll(t, func(t testing.TB) *webtest.Tab { return browser.Tab(t, c.BaseURL) }, views)
	}
	sandbox := newPaying(t)
	check(sandbox.Client, slices.Concat(sandbox.paymentViews(t), sandbox.signupViews(t), documentationViews(t),
		[]webtest.View{
			{Name: "landing", Path: "/", Text: "Sandbox console"},
			{Name: "not found", Path: "/nothing", Text: "There is nothing at this address"},
		}, referenceViews()))
	late := newBilling(t, nil)
	check(late.Client, late.expiredViews(t))
	production := newBilling(t, func(cfg *api.Config) { cfg.Sandbox, cfg.AppLink = nil, appLink(t) })
	check(production.Client, append(production.offers(t, "production"),
		webtest.View{Name: "landing in production", Path: "/", Text: "Production"}))
	bare := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	check(bare.Client, bare.offers(t, "production without a deep link"))
	down := newBilling(t, func(cfg *api.Config) {
		store, err := models.Open(postgres.Config{DSN: "postgres://svc@" + localtest.FreeAddress(t) + "/svc"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		cfg.Store = store
	})
	check(down.Client, []webtest.View{
		{Name: "payment unavailable", Path: "/P/ABCDEFGHIJKLMNOP", Text: "Something went wrong"},
	})
}

// The pages stay legible in light and dark, whatever colour the partner has.
func TestColouredPagesInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a walk through pages")
	}
	t.Parallel()
	browser := webtest.Start(t)
	for colour, painted := range map[models.Colour]string{
		"#ffff99": "rgb(255, 255, 153)", "#101010": "rgb(16, 16, 16)",
	} {
		c := newPaying(t)
		c.colour(t, colour)
		views := c.colouredViews(t, string(colour))
		open := func(t testing.TB) *webtest.Tab { return browser.Tab(t, c.BaseURL) }
		webtest.CheckAll(t, open, views)
		b := open(t)
		b.Open(views[0].Path)
		const ground = `getComputedStyle(document.querySelector(".primary")).backgroundColor`
		if got := webtest.Ask[string](b, ground); got != painted {
			t.Errorf("%s: the button is %s", colour, got)
		}
	}
}

// colouredViews makes the pages that show the most of a partner's colour.
func (c *paying) colouredViews(t *testing.T, colour string) []webtest.View {
	t.Helper()
	_, code := c.intent(t)
	paid := c.ended(t, party, models.TransactionResult{Status: models.TransactionSettled})
	return []webtest.View{
		{Name: "payment in " + colour, Path: "/P/" + code, Text: "Pay AUD"},
		{Name: "receipt in " + colour, Path: "/P/" + paid, Text: "Paid"},
		{Name: "signup in " + colour, Path: c.invite(t, "ada"), Text: "Invitation from Harbour Power"},
	}
}

// A customer chooses, declines and pays by keyboard. The page shows each result by itself.
func TestPaymentPageByKeyboard(t *testing.T) {
	t.Parallel()
	browser := webtest.Start(t)
	c := newPaying(t)
	b := browser.Tab(t, c.BaseURL)
	b.Look(390, "light")
	webtest.Call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Australia/Sydney"})
	_, code := c.intent(t)
	b.Open("/P/" + code)
	b.Sees("12:28") // of the next day
	const end = `document.querySelector(".primary").getBoundingClientRect().bottom`
	if bottom := webtest.Ask[float64](b, end); bottom > 844 {
		t.Errorf("the button to pay ends %v pixels below the top", bottom)
	}
	var names []string
	for _, stop := range b.Stops() {
		names = append(names, stop.Name)
	}
	if diff := cmp.Diff([]string{"Pay AUD 10.00", "Decline", "How the account behaves"}, names); diff != "" {
		t.Errorf("the Tab key stops elsewhere (-want +got):\n%s", diff)
	}
	b.Open("/P/" + code)
	b.TabTo("Decline")
	b.Keys(" ")
	b.Sees("on its way")
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionDeclined})
	b.Sees("The payment was declined")
	told := webtest.Ask[string](b, `document.getElementById("announcement").textContent + "/" + document.title`)
	if told != "The payment was declined/The payment was declined" {
		t.Errorf("told to screen readers: %q", told)
	}

	_, code = c.intent(t)
	b.Open("/P/" + code)
	b.TabTo("How the account behaves")
	b.Keys(kb.Enter + kb.Tab + kb.ArrowDown)
	b.TabTo("Pay AUD 10.00") // around the page
	b.Keys(kb.Enter)
	b.Sees("on its way")
	claimed := c.claim(t)
	if got := c.behaviour(t, claimed); got != models.BehaviourInsufficientFunds {
		t.Errorf("the account is %q", got)
	}
	c.finish(t, claimed, models.TransactionResult{Status: models.TransactionSettled})
	b.Sees("You have paid")
	b.TabTo("Print the receipt")
	for _, reported := range b.BrowserErrors() {
		t.Errorf("the browser reports: %s", reported)
	}

	webtest.Call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	_, code = c.intent(t)
	b.Open("/P/" + code)
	b.Press("Pay AUD\u00a010.00")
	b.Sees("on its way")
	c.finish(t, c.claim(t), models.TransactionResult{Status: models.TransactionSettled})
	b.Sees("You have paid")
}

// A customer signs up by keyboard, and sees in another tab that it has happened.
func TestSignupPageByKeyboard(t *testing.T) {
	t.Parallel()
	browser := webtest.Start(t)
	c := newBilling(t, nil)
	b, other := browser.Tab(t, c.BaseURL), browser.Tab(t, c.BaseURL)
	path := c.invite(t, "ada")
	other.Open(path)
	b.Look(390, "light")
	b.Open(path)
	b.TabTo("Not now")
	b.Keys(kb.Enter)
	b.Sees("You have not signed up")
	b.TabTo("Back to the invitation")
	b.Keys(kb.Enter)
	b.Sees("Invitation from Harbour Power")
	b.TabTo("Sign up")
	b.Keys(" ")
	b.Sees("You are signed up")
	other.Sees("You are signed up")
	for _, reported := range append(b.BrowserErrors(), other.BrowserErrors()...) {
		t.Errorf("the browser reports: %s", reported)
	}
}
