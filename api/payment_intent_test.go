package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/png"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestPaymentIntentAnswers(t *testing.T) {
	c := newPaying(t)
	golden(t, "intent-created", c.Post(c.intents(""), `{"amount":1}`).Expect(201))
	golden(t, "intent-created-text",
		c.Post(c.intents(""), `{"amount":1,"orderId":"<&> é","qrCodeFormat":"text","note":[null]}`).Expect(201))
	id, code := c.intent(t)
	path := c.intents("/" + id)
	golden(t, "intent", c.Get(path).Expect(200))
	c.Send(http.MethodHead, path, nil).Expect(200)
	claimed := c.pay(t, code)
	golden(t, "intent-pending", c.Get(path).Expect(200))
	golden(t, "intent-not-cancellable", c.Post(path+"/cancellation", nil).Expect(409))
	c.finish(t, claimed, models.TransactionResult{Status: models.TransactionSettled})
	golden(t, "intent-settled", c.Get(path).Expect(200))
	golden(t, "intent-not-cancellable", c.Post(path+"/cancellation", nil).Expect(409))

	id, _ = c.intent(t)
	golden(t, "intent-cancelled", c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200))
	golden(t, "intent-cancelled", c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)) // again
	golden(t, "intent-cancelled", c.Get(c.intents("/"+id)).Expect(200))

	id, _ = c.intent(t)
	c.advance(t, 15*time.Minute)
	golden(t, "intent-expired", c.Get(c.intents("/"+id)).Expect(200))
	golden(t, "intent-not-cancellable", c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(409))

	shop := `{"amount":1,"returnUrl":"https://shop.example/back?order=7&x=%20#end"}`
	id = dataOf[createdIntent](c.Post(c.intents(""), shop).Expect(201)).PaymentIntentID
	golden(t, "intent-return-url", c.Get(c.intents("/"+id)).Expect(200))
	golden(t, "intent-not-found", c.Get(c.intents("/pi_01932c07-0000-7000-8000-000000000009")).Expect(404))
}

func TestPaymentIntentFaults(t *testing.T) {
	c := newPaying(t)
	line := func(fields string) string {
		return `{"amount":5,"lineItems":[{"itemId":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":1},` + fields +
			`]}`
	}
	for body, messages := range map[string][]string{
		`{}`:                           {"amount is required"},
		`{"amount":null}`:              {"amount is required"},
		`{"amount":0}`:                 {"amount must be greater than 0"},
		`{"amount":-1}`:                {"amount must be greater than 0"},
		`{"amount":"5"}`:               {"amount must be an integer"},
		`{"amount":5.0}`:               {"amount must be an integer"},
		`{"amount":1e2}`:               {"amount must be an integer"},
		`{"amount":9007199254740992}`:  {"amount must be an integer from 1 to 9007199254740991"},
		`{"amount":-9007199254740992}`: {"amount must be greater than 0"},
		`{"amount":5,"expiresAt":` + strings.Repeat("9", 99) +
			`}`: {"expiresAt must be an integer from 1 to 9007199254740991"},
		line(
			`{"itemId":"i","quantity":9007199254740992,"amountPerUnit":9007199254740992,"amountSubtotal":9007199254740992}`): {
			"lineItems[1].quantity must be an integer from 1 to 9007199254740991",
			"lineItems[1].amountPerUnit must be an integer from 0 to 9007199254740991",
			"lineItems[1].amountSubtotal must be an integer from 0 to 9007199254740991"},
		`{"amount":0,"orderId":"","qrCodeFormat":"PNG","expiresAt":0}`: {
			"amount must be greater than 0", "orderId must have 1 to 128 characters",
			"qrCodeFormat must be one of base64, text",
			"expiresAt must be at least 1"},
		`{"amount":5,"expiresAt":1}`:  {"expiresAt must be 1 minute to 24 hours ahead"},
		`{"amount":5,"expiresAt":-1}`: {"expiresAt must be at least 1"},
		`{"amount":0,"expiresAt":1}`:  {"amount must be greater than 0", "expiresAt must be 1 minute to 24 hours ahead"},
		`{"amount":5,"orderId":".."}`: {`orderId must not be "." or ".."`},
		`{"amount":5,"lineItems":{}}`: {"lineItems must be an array"},
		`{"amount":5,"returnUrl":""}`: {
			"returnUrl must be an absolute URL in printable ASCII, of at most 2048 characters"},
		`{"amount":5,"returnUrl":"javascript:alert(1)"}`: {
			"returnUrl must be an absolute URL in printable ASCII, of at most 2048 characters"},
		`{"amount":5,"returnUrl":"ftp://shop.example"}`:  {"returnUrl must be an http or https URL"},
		`{"amount":5,"returnUrl":["https://a.example"]}`: {"returnUrl must be a string"},
		`{"amount":5,"lineItems":[1]}`:                   {"lineItems[0] must be an object"},
		line(`{}`): {"lineItems[1].itemId is required", "lineItems[1].quantity is required",
			"lineItems[1].amountPerUnit is required", "lineItems[1].amountSubtotal is required"},
		line(`{"itemId":"a\nb","quantity":0,"amountPerUnit":-1,"amountSubtotal":-1,"addOns":[]}`): {
			"lineItems[1].itemId must not contain control characters", "lineItems[1].quantity must be at least 1",
			"lineItems[1].amountPerUnit must be at least 0", "lineItems[1].amountSubtotal must be at least 0",
			"lineItems[1].addOns must be an object"},
		line(
			`{"itemId":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":1,"addOns":{"customizations":1,"modifiers":[1,"a"]}}`): {
			"lineItems[1].addOns.modifiers[0] must be a string", "lineItems[1].addOns.customizations must be a string"},
		`{"amount":5,"orderId":"a\u202eb"}`: {"orderId must not contain invisible or direction-changing characters"},
		line(
			"{\"itemId\":\"i\u200b\",\"quantity\":1,\"amountPerUnit\":1,\"amountSubtotal\":1,\"addOns\":{\"customizations\":\"\u2066x\",\"modifiers\":[\"m\",\"\ufeffm\"]}}"): {
			"lineItems[1].itemId must not contain invisible or direction-changing characters",
			"lineItems[1].addOns.modifiers[1] must not contain invisible or direction-changing characters",
			"lineItems[1].addOns.customizations must not contain invisible or direction-changing characters"},
		line(
			`{"itemId":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":1,"addOns":{"customizations":"a\u0007","modifiers":["\u007f"]}}`): {
			"lineItems[1].addOns.modifiers[0] must not contain control characters",
			"lineItems[1].addOns.customizations must not contain control characters"},
		line(`{"itemId":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":9007199254740991}`): {
			"lineItems must have values of amountSubtotal that add up to at most 9007199254740991"},
		`{"amount":5,"Amount":6}`: {"amount must be written with exactly this capitalisation"},
		`{"amount":5,"lineItems":[{"itemid":"i","quantity":1,"amountPerUnit":1,"amountSubtotal":1}]}`: {
			"lineItems[0].itemId must be written with exactly this capitalisation"},
		`[]`:                      {"The body must be a JSON object (at byte 0)."},
		`{"amount":5,"amount":5}`: {"The body has a key twice (at byte 12)."},
	} {
		a := c.Post(c.intents(""), body)
		if body[0] == '[' || strings.Count(body, `"amount"`) > 1 { // other messages
			a.Expect(400)
			continue
		}
		complains(t, a, 400, messages...)
	}
	golden(t, "intent-amount", c.Post(c.intents(""), `{"amount":0}`).Expect(400))
	many := `{"amount":5,"lineItems":[` + strings.Repeat(`{},`, 200) + `{}]}`
	if got := len(c.Post(c.intents(""), many).Expect(400).Faults()); got != 100 {
		t.Errorf("%d faults are told", got)
	}
}

// An optional field may be null, and the answer contains it only with a value.
func TestPaymentIntentOptionalFields(t *testing.T) {
	c := newPaying(t)
	for body, want := range map[string][]models.LineItem{
		`{"amount":5,"orderId":null,"qrCodeFormat":null,"lineItems":null,"expiresAt":null}`: nil,
		`{"amount":5,"lineItems":[]}`: nil,
		`{"amount":5,"lineItems":[{"itemId":"i","quantity":1,"amountPerUnit":0,"amountSubtotal":0,"addOns":null}]}`: {
			{ItemID: "i", Quantity: 1}},
		`{"amount":5,"lineItems":[{"itemId":"i","quantity":1,"amountPerUnit":0,"amountSubtotal":0,"addOns":{"customizations":null,"modifiers":[],"x":1}}]}`: {
			{ItemID: "i", Quantity: 1}},
		`{"amount":5,"lineItems":[{"itemId":"i","quantity":1,"amountPerUnit":0,"amountSubtotal":0,"addOns":{"modifiers":["","<&>"]},"x":1}]}`: {
			{ItemID: "i", Quantity: 1, AddOns: &models.AddOns{Modifiers: []string{"", "<&>"}}}},
		`{"amount":9007199254740991,"lineItems":[{"itemId":"🦆","quantity":9007199254740991,"amountPerUnit":9007199254740991,"amountSubtotal":9007199254740991}]}`: {
			{ItemID: "🦆", Quantity: 9007199254740991, AmountPerUnit: models.MaxAmount,
				AmountSubtotal: models.MaxAmount}},
	} {
		made := dataOf[createdIntent](c.Post(c.intents(""), body).Expect(201))
		if !strings.HasPrefix(made.QRCode, "data:image/png;base64,") || made.OrderID != "" {
			t.Errorf("%s: %+v", body, made)
		}
		if diff := cmp.Diff(want, c.getIntent(made.PaymentIntentID).LineItems); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// The QR code's text is the URL of the payment page.
func TestQRCodeLeadsToThePage(t *testing.T) {
	c := newPaying(t)
	made := c.Post(c.intents(""), `{"amount":5}`).Expect(201)
	uri := dataOf[createdIntent](made).QRCode
	encoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(uri, "data:image/png;base64,"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap,
		map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true})
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(result.GetText(), strings.ToUpper(publicURL))
	if !ok {
		t.Fatalf("it says %q", result.GetText())
	}
	checkPage(t, c.Get(path), 200, "Pay AUD")
	c.Get(made.Header.Get("Location")).Expect(200)
}

func TestCheckQRBase(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://pay.example": true, "http://127.0.0.1:8080": true, "http://[::1]:8080": true,
		"https://a_b.example": true,
		"https://" + strings.Repeat("a.", 120) + "example:65535": true, "https://bücher.example": false,
		"https://" + strings.Repeat("a", 4000): false,
	} {
		if err := api.CheckQRBase(url); (err == nil) != ok {
			t.Errorf("%.40s: %v", url, err)
		}
	}
}

func TestPaymentIntentIdempotency(t *testing.T) {
	c := newPaying(t)
	keyed := c.With("Idempotency-Key", "k")
	first := keyed.Post(c.intents(""), `{"amount":5,"orderId":"o"}`).Expect(201)
	again := keyed.Post(c.intents(""), `{ "orderId": "\u006f", "amount": 5 }`).Expect(201)
	if diff := cmp.Diff(dataOf[createdIntent](first), dataOf[createdIntent](again)); diff != "" {
		t.Error(diff)
	}
	if again.Header.Get("Idempotent-Replayed") != "true" || first.Header.Get("Idempotent-Replayed") != "" ||
		again.Header.Get("Location") != first.Header.Get("Location") {
		t.Errorf("headers %v, then %v", first.Header, again.Header)
	}
	golden(t, "intent-idempotency-key-reused", keyed.Post(c.intents(""), `{"amount":6,"orderId":"o"}`).Expect(422))
	keyed.Post(c.intents(""), `{"amount":0}`).Expect(400)
	c.With("Idempotency-Key", "failed").Post(c.intents(""), `{"amount":0}`).Expect(400) // a refusal is not stored
	c.With("Idempotency-Key", "failed").Post(c.intents(""), `{"amount":5}`).Expect(201)
	complains(t, c.With("Idempotency-Key", "a b").Post(c.intents(""), `{"amount":5}`), 400,
		"Idempotency-Key must be 1 to 255 visible ASCII characters, once")
	c.advance(t, 24*time.Hour)
	fresh := keyed.Post(c.intents(""), `{"amount":6}`).Expect(201)
	if fresh.Header.Get("Idempotent-Replayed") != "" {
		t.Error("the key lives longer than a day")
	}
}

// Every error about payment intents has Shape B.
func TestCheckoutErrorsHaveShapeB(t *testing.T) {
	c := newPaying(t)
	id, _ := c.intent(t)
	anonymous := c.With("Authorization", "")
	for what, tt := range map[string]struct {
		answer *apitest.Answer
		status int
	}{
		"no token":     {anonymous.Get(c.intents("/" + id)), 401},
		"bad token":    {c.WithToken("x").Post(c.intents(""), `{"amount":1}`), 401},
		"the app's":    {c.app.Get(c.intents("/" + id)), 403},
		"another's":    {c.other.Get(c.intents("/" + id)), 403},
		"no Site":      {c.Get("/checkout/x/payment-intent/" + id), 403},
		"sister Site":  {c.Get("/checkout/" + c.sister.String() + "/payment-intent/" + id), 404},
		"no such":      {c.Get(c.intents("/x")), 404},
		"no such id":   {c.Get(c.intents("/" + strings.ToUpper(id))), 404},
		"no route":     {c.Get("/checkout"), 404},
		"slash":        {c.Get(c.intents("/")), 404},
		"below":        {c.Get(c.intents("/" + id + "/x")), 404},
		"method":       {c.Send(http.MethodDelete, c.intents("/"+id), nil), 405},
		"method again": {c.Send(http.MethodPut, c.intents(""), nil), 405},
		"list":         {c.Get(c.intents("?limit=0")), 400},
		"link":         {c.Get(c.intents("?cursor=x")), 400},
		"media type":   {c.With("Content-Type", "text/plain").Post(c.intents(""), `{"amount":1}`), 415},
		"encoding":     {c.With("Content-Encoding", "gzip").Post(c.intents(""), `{"amount":1}`), 415},
		"large":        {c.Post(c.intents(""), `{"amount":1,"x":"`+strings.Repeat("x", 64<<10)+`"}`), 413},
		"parameter":    {c.Get(c.intents("/" + id + "?x=1")), 400},
	} {
		tt.answer.Expect(tt.status) // the client holds the shape against the description
		for _, f := range tt.answer.Faults() {
			if f.Code != "" || f.Target != "" || f.Message == "" {
				t.Errorf("%s: %s", what, tt.answer.Body)
			}
		}
	}
	limited := newBilling(t, func(cfg *api.Config) { cfg.Limiter = &limiter{} })
	limited.Post(limited.intents(""), `{"amount":1}`).Expect(429)
	if err := c.store.Close(); err != nil {
		t.Fatal(err)
	}
	if a := c.Get(c.intents("/" + id)); a.Status < 500 || strings.Contains(string(a.Body), "sql") {
		t.Errorf("status %d: %s", a.Status, a.Body)
	}
}

func TestWaitForTheEndOfAPayment(t *testing.T) {
	c := newPaying(t)
	patient := c.With("Prefer", "wait=30")
	id, code := c.intent(t)
	answers := c.arrived.hold(t, patient, c.intents("/"+id))
	claimed := c.pay(t, code)
	select {
	case a := <-answers:
		t.Fatalf("answered before the end: %s", a.Body)
	default:
	}
	c.finish(t, claimed, models.TransactionResult{Status: models.TransactionDeclined, Reason: models.OutcomeDeclined})
	if got := dataOf[intentData](received(t, answers, 200)); got.TransactionStatus != "Declined" {
		t.Errorf("%+v", got)
	}
	// answers at once
	if a := patient.Get(c.intents("/" + id)).Expect(200); a.Header.Get("Preference-Applied") != "wait" {
		t.Errorf("headers %v", a.Header)
	}

	id, _ = c.intent(t)
	answers = c.arrived.hold(t, patient, c.intents("/"+id))
	c.advance(t, 15*time.Minute)
	if got := dataOf[intentData](received(t, answers, 200)); got.TransactionStatus != "Expired" {
		t.Errorf("%+v", got)
	}
	id, _ = c.intent(t)
	if got := dataOf[intentData](c.With("Prefer", "wait=1").Get(c.intents("/" + id)).
		Expect(200)); got.State != "created" {
		t.Errorf("after a second: %+v", got)
	}
	patient.Get(c.intents("/pi_01932c07-0000-7000-8000-000000000009")).Expect(404)
}

// A cancellation notifies the dispatcher of the webhook's task.
func TestCancellationNotifies(t *testing.T) {
	c := newPaying(t)
	id, _ := c.intent(t)
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	select {
	case tasks := <-c.tasks:
		t.Errorf("tasks %v without an endpoint", tasks)
	default:
	}
	if _, err := c.store.DB().ExecContext(t.Context(), fmt.Sprintf(`
INSERT INTO webhook_endpoints (organisation_id, site_id, url, created_at, updated_at, width)
SELECT organisation_id, id, 'https://partner.example', 1, 1, 1 FROM sites WHERE id = '%s'`,
		c.site.String()[len("site_"):])); err != nil {
		t.Fatal(err)
	}
	id, _ = c.intent(t)
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	if tasks := <-c.tasks; len(tasks) != 1 {
		t.Errorf("tasks %v", tasks)
	}
}

// An intent created before a loss may have been paid in a lost transaction. Its cancellation wakes
// the worker that asks the rail.
func TestCancellationAfterALossAsksTheRail(t *testing.T) {
	c := newPaying(t)
	id, _ := c.intent(t)
	modelstest.Backup(t, c.store)()
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(409)
	select {
	case tasks := <-c.tasks:
		if len(tasks) != 1 {
			t.Errorf("tasks %v", tasks)
		}
	default:
		t.Error("no worker is woken")
	}
	if got := dataOf[intentData](c.Get(c.intents("/" + id)).Expect(200)); got.State != "pending" {
		t.Errorf("after the cancellation: %+v", got)
	}
}
