package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"partnerbilling/api/qr"
	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Maximum lengths of the lists in a payment intent. The limit of JSON values in a body (see
// ordinaryBody) allows fewer line items than maxLineItems.
const (
	maxLineItems = 1000
	maxModifiers = 1000
)

// paymentIntents handles the routes about a Site's payment intents.
type paymentIntents struct {
	store    *models.Store
	notify   func([]models.TaskID) // may be nil
	qrBase   string                // see the function qrBase
	pictures *qr.Series            // renders the QR codes
	pages    *paginator
	sandbox  bool
	held     *heldLimit                              // bounds the requests with Prefer: wait
	watches  *watches[intentKey, models.IntentState] // poll the intents that these requests wait for
}

// intentKey names a payment intent.
type intentKey struct {
	site models.SiteID
	id   models.PaymentIntentID
}

func newPaymentIntents(cfg Config, held *heldLimit) *paymentIntents {
	poll := func(ctx context.Context, key intentKey) (models.IntentState, error) {
		intent, err := cfg.Store.PaymentIntent(ctx, key.site, key.id)
		return intent.State, err
	}
	return &paymentIntents{
		store: cfg.Store, notify: cfg.Notify, qrBase: qrBase(cfg.PublicBaseURL), pictures: pictures(cfg.PublicBaseURL),
		pages: newPaginator(cfg), sandbox: cfg.Sandbox != nil, held: held,
		watches: newWatches(cfg.Log, minPollInterval, maxPollInterval, poll),
	}
}

// qrBase returns the text of every QR code up to the code of its payment intent. The text is upper
// case, because QR's alphanumeric mode takes less space. Browsers turn scheme and host into lower
// case, and the route's path is upper case.
func qrBase(publicBaseURL string) string { return strings.ToUpper(publicBaseURL) + "/P/" }

// pictures returns the series that renders the QR codes of payment intents.
func pictures(publicBaseURL string) *qr.Series {
	return qr.NewSeries(qrBase(publicBaseURL), models.IntentCodeLength)
}

// CheckQRBase returns an error if QR codes cannot hold payment URLs under a public base URL. The
// service calls it at the start, so that an unusable host fails early. The call also warms the
// cache that every QR code uses.
func CheckQRBase(publicBaseURL string) error {
	if _, err := pictures(publicBaseURL).PNG(models.NewIntentCode()); err != nil {
		return fmt.Errorf("api: public base URL: %w", err)
	}
	return nil
}

// paymentIntentData is a payment intent on the wire. Amounts are in minor units. It does not
// identify the customer.
type paymentIntentData struct {
	PaymentIntentID   models.PaymentIntentID   `json:"paymentIntentId"`
	Amount            models.Amount            `json:"amount"`
	Currency          string                   `json:"currency"`
	OrderID           string                   `json:"orderId,omitempty"`
	LineItems         []models.LineItem        `json:"lineItems,omitempty"`
	PaymentURL        string                   `json:"paymentUrl"` // the text of the QR code
	ReturnURL         string                   `json:"returnUrl,omitempty"`
	State             models.IntentState       `json:"state"`
	TransactionStatus models.TransactionStatus `json:"transactionStatus,omitempty"`
	TransactionID     models.TransactionID     `json:"transactionId,omitzero"`
	AmountPaid        *models.Amount           `json:"amountPaid,omitempty"` // may be 0
	CreatedAt         models.Millis            `json:"createdAt"`
	ExpiresAt         models.Millis            `json:"expiresAt"`
}

func (p *paymentIntents) describe(intent *models.PaymentIntent) paymentIntentData {
	return describeIntent(p.qrBase, intent)
}

// describeIntent returns a payment intent as the answer shows it. qrBase is the text before its
// code.
func describeIntent(qrBase string, intent *models.PaymentIntent) paymentIntentData {
	return paymentIntentData{
		PaymentIntentID: intent.ID, Amount: intent.Amount, Currency: intent.Currency, OrderID: intent.OrderID,
		LineItems: intent.LineItems, PaymentURL: qrBase + intent.Code, ReturnURL: intent.ReturnURL, State: intent.State,
		TransactionStatus: intent.Status, TransactionID: intent.Transaction.ID, AmountPaid: amountPaid(intent),
		CreatedAt: intent.CreatedAt, ExpiresAt: intent.ExpiresAt,
	}
}

// amountPaid returns the amount that was charged, nil unless the payment has settled.
func amountPaid(p *models.PaymentIntent) *models.Amount {
	if paid, ok := p.AmountPaid(); ok {
		return &paid
	}
	return nil
}

// create stores the payment intent in the body, and answers with its id and QR code.
func (p *paymentIntents) create(ctx context.Context, r *Request) error {
	in, err := p.read(r)
	if err != nil {
		return r.joinExpiryFault(ctx, err, p.store, in.ExpiresAt, models.CheckIntentExpiry)
	}
	intent, replayed, err := p.store.CreatePaymentIntent(ctx, in, idempotencyKey(r))
	if err != nil {
		return err
	}
	answer, err := p.describeCreated(&intent)
	if err != nil {
		return err
	}
	if replayed {
		r.Replayed()
	}
	r.Location("checkout", r.Site.ID.String(), "payment-intent", intent.ID.String())
	return r.JSONBytes(http.StatusCreated, answer)
}

// describeCreated encodes the answer to the creation of a payment intent. It appends the large
// picture directly, because encoding it as JSON would cost more.
func (p *paymentIntents) describeCreated(intent *models.PaymentIntent) (answer []byte, err error) {
	answer = append(make([]byte, 0, 1024), `{"qrCode":`...)
	if intent.QRCodeFormat == models.QRCodeBase64 {
		if answer, err = p.pictures.AppendDataURI(append(answer, '"'), intent.Code); err != nil {
			return nil, err
		}
		answer = append(answer, '"')
	} else {
		answer, _ = jsontext.AppendQuote(answer, p.qrBase+intent.Code) // never fails: the text is UTF-8
	}
	answer = append(append(append(answer, `,"paymentIntentId":"`...), intent.ID.String()...), '"')
	if intent.OrderID != "" {
		// never fails: the orderId came in JSON
		answer, _ = jsontext.AppendQuote(append(answer, `,"orderId":`...), intent.OrderID)
	}
	return append(answer, '}'), nil
}

// read decodes the body of a payment intent. The error lists every fault.
func (p *paymentIntents) read(r *Request) (models.NewPaymentIntent, error) {
	body := strictjson.NewObject(r.Body, "amount", "orderId", "qrCodeFormat", "lineItems", "expiresAt", "returnUrl")
	in := models.NewPaymentIntent{SiteID: r.Site.ID, OrganisationID: r.Site.OrganisationID,
		QRCodeFormat: models.QRCodeBase64}
	in.Amount = models.Amount(body.RequiredInt("amount", checkAmount))
	in.OrderID, _ = body.OptionalString("orderId", models.ValidateReference)
	if format, ok := body.OptionalString("qrCodeFormat", checkQRCodeFormat); ok {
		in.QRCodeFormat = models.QRCodeFormat(format)
	}
	known := []string{"itemId", "quantity", "amountPerUnit", "amountSubtotal", "addOns"}
	for _, line := range body.OptionalObjects("lineItems", 0, maxLineItems, known...) {
		in.LineItems = append(in.LineItems, readLineItem(line))
	}
	expiresAt, _ := body.OptionalInt("expiresAt", strictjson.AtLeast(1))
	in.ExpiresAt = models.Millis(expiresAt)
	in.ReturnURL, _ = body.OptionalString("returnUrl", func(s string) error {
		return models.CheckReturnURL(s, p.sandbox)
	})
	return in, joinFaults(r.BodyError(body), checkLineItems(in.LineItems))
}

// checkAmount refuses an amount below 1 or above strictjson.MaxInteger.
func checkAmount(n int64) error {
	if n < 1 {
		return errors.New("must be greater than 0")
	}
	return strictjson.AtLeast(1)(n)
}

var checkQRCodeFormat = isOneOf([]models.QRCodeFormat{models.QRCodeBase64, models.QRCodeText})

func readLineItem(line strictjson.Fields) models.LineItem {
	item := models.LineItem{
		ItemID:         line.RequiredString("itemId", models.ValidateReference),
		Quantity:       line.RequiredInt("quantity", strictjson.AtLeast(1)),
		AmountPerUnit:  models.Amount(line.RequiredInt("amountPerUnit", strictjson.AtLeast(0))),
		AmountSubtotal: models.Amount(line.RequiredInt("amountSubtotal", strictjson.AtLeast(0))),
	}
	if fields, ok := line.OptionalObject("addOns", "customizations", "modifiers"); ok {
		addOns := models.AddOns{Modifiers: fields.OptionalStrings("modifiers", maxModifiers, models.ValidateText)}
		addOns.Customizations, _ = fields.OptionalString("customizations", models.ValidateText)
		if addOns.Customizations != "" || len(addOns.Modifiers) > 0 {
			item.AddOns = &addOns
		}
	}
	return item
}

// checkLineItems returns a fault if the subtotals add up to more than models.MaxAmount. The fault
// names the whole list, because no single line is wrong.
func checkLineItems(items []models.LineItem) []Fault {
	var total models.Amount
	for _, item := range items {
		var err error
		if total, err = total.Add(max(item.AmountSubtotal, 0)); err != nil {
			return []Fault{{Code: InvalidField, Target: "lineItems", Message: fmt.Sprintf(
				"lineItems must have values of amountSubtotal that add up to at most %d", models.MaxAmount)}}
		}
	}
	return nil
}

// get answers with the payment intent in the path. With Prefer: wait it first waits until the
// payment intent is final.
func (p *paymentIntents) get(ctx context.Context, r *Request) error {
	key := intentKey{r.Site.ID, paramID[models.PaymentIntentID](r)}
	wait, release := p.held.preferredWait(r)
	defer release()
	if wait > 0 {
		if err := p.hold(ctx, r, key, wait); err != nil {
			return r.intentError(err)
		}
		r.SetHeader("Preference-Applied", "wait")
	}
	intent, err := p.store.PaymentIntent(ctx, key.site, key.id)
	if err != nil {
		return r.intentError(err)
	}
	return r.JSON(http.StatusOK, p.describe(&intent))
}

// hold returns when the payment intent is final. It also returns after the given wait, when the
// client disconnects, or when a shutdown begins. It is an error if the caller loses access (see
// watch.hold).
func (p *paymentIntents) hold(ctx context.Context, r *Request, key intentKey, wait time.Duration) error {
	w, leave := p.watches.join(r, key)
	defer leave()
	seen := w.last() // before the read, so that no change is missed
	if final, err := p.isFinal(ctx, key); final || err != nil {
		return err
	}
	wanted := func(s models.IntentState) bool { return s == models.IntentFinal }
	_, err := w.hold(ctx, r, seen, wait, wanted, func(seen sighting[models.IntentState]) (bool, error) {
		if seen.err != nil { // the poll has failed, which says nothing about the state
			return p.isFinal(ctx, key)
		}
		return true, nil
	})
	return err
}

// isFinal reads the payment intent and reports whether it is final.
func (p *paymentIntents) isFinal(ctx context.Context, key intentKey) (bool, error) {
	intent, err := p.store.PaymentIntent(ctx, key.site, key.id)
	return intent.State == models.IntentFinal, err
}

// cancel cancels the payment intent in the path, unless a customer has begun to pay it.
func (p *paymentIntents) cancel(ctx context.Context, r *Request) error {
	intent, task, err := p.store.CancelPaymentIntent(ctx, r.Site.ID, paramID[models.PaymentIntentID](r))
	notifyTasks(p.notify, task) // even with an error: the task may ask the rail about the intent
	if err != nil {
		return r.intentError(err)
	}
	return r.JSON(http.StatusOK, p.describe(&intent))
}

// intentError maps errors about a payment intent or its payment to their answers. It returns other
// errors unchanged.
func (r *Request) intentError(err error) error {
	var discount *models.DiscountError
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Refuse(PaymentIntentNotFound, r.route.Param.Name)
	case errors.Is(err, models.ErrIntentNotCancellable):
		return Refuse(PaymentIntentNotCancellable, "")
	case errors.Is(err, models.ErrIntentEnded):
		e := Refuse(PaymentIntentTaken, "")
		e.Faults[0].Message = "The payment intent has ended."
		return e
	case errors.Is(err, models.ErrIntentTaken):
		return Refuse(PaymentIntentTaken, "")
	case errors.Is(err, models.ErrIntentExpired):
		return Refuse(PaymentIntentExpired, "")
	case errors.Is(err, models.ErrIntentCancelled):
		return Refuse(PaymentIntentCancelled, "")
	case errors.As(err, &discount):
		return RefuseField(InvalidField, fmt.Sprintf("discounts[%d].%s", discount.Index, discount.Field),
			discount.Message)
	}
	return err
}
