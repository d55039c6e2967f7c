package api

import (
	"context"
	"net/http"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// maxDiscounts is the largest number of discounts in one payment.
const maxDiscounts = 1000

// checkIntentCode refuses a malformed code of a payment intent. The route answers it like an
// unknown code.
func checkIntentCode(s string) error {
	if !models.ValidIntentCode(s) {
		return models.ErrInvalidID
	}
	return nil
}

// customerPayments handles the routes by which customers pay: those of the customer app's backend,
// and the sandbox's route that plays the app.
type customerPayments struct {
	store   *models.Store
	notify  func([]models.TaskID) // may be nil
	sandbox bool
}

func newCustomerPayments(cfg Config) *customerPayments {
	return &customerPayments{store: cfg.Store, notify: cfg.Notify, sandbox: cfg.Sandbox != nil}
}

// payableIntent is a payment intent as the customer app sees it. It does not identify the customer.
type payableIntent struct {
	PaymentIntentID   models.PaymentIntentID   `json:"paymentIntentId"`
	OrganisationName  string                   `json:"organisationName"`
	SiteName          string                   `json:"siteName"`
	Amount            models.Amount            `json:"amount"`
	Currency          string                   `json:"currency"`
	OrderID           string                   `json:"orderId,omitempty"`
	LineItems         []models.LineItem        `json:"lineItems,omitempty"`
	State             models.IntentState       `json:"state"`
	TransactionStatus models.TransactionStatus `json:"transactionStatus,omitempty"`
	TransactionID     models.TransactionID     `json:"transactionId,omitzero"`
	AmountPaid        *models.Amount           `json:"amountPaid,omitempty"`
	ExpiresAt         models.Millis            `json:"expiresAt"`
}

// get answers with the payment intent of the code in the path.
func (c *customerPayments) get(ctx context.Context, r *Request) error {
	p, payee, err := c.store.PaymentIntentByCode(ctx, r.Param())
	if err != nil {
		return r.intentError(err)
	}
	return r.JSON(http.StatusOK, payableIntent{
		PaymentIntentID: p.ID, OrganisationName: payee.OrganisationName, SiteName: payee.SiteName, Amount: p.Amount,
		Currency: p.Currency, OrderID: p.OrderID, LineItems: p.LineItems, State: p.State, TransactionStatus: p.Status,
		TransactionID: p.Transaction.ID, AmountPaid: amountPaid(&p), ExpiresAt: p.ExpiresAt,
	})
}

// pay lets the customer in the body begin to pay the payment intent of the code in the path. In a
// sandbox, pay first opens a paying account for the agreement.
func (c *customerPayments) pay(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "customerId", "agreementId", "discounts")
	party := models.Party{
		CustomerID:  body.RequiredString("customerId", models.ValidateReference),
		AgreementID: body.RequiredString("agreementId", models.ValidateReference),
	}
	discounts := readDiscounts(body)
	if err := r.BodyError(body); err != nil {
		return err
	}
	if c.sandbox {
		if err := openPayingAccount(ctx, c.store, party.AgreementID); err != nil {
			return err
		}
	}
	return c.start(ctx, r, r.Param(), party, discounts)
}

// payInSandbox lets a generated customer begin to pay one of the partner's payment intents.
func (c *customerPayments) payInSandbox(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "behaviour", "discounts")
	behaviour := readBehaviour(body)
	discounts := readDiscounts(body)
	if err := r.BodyError(body); err != nil {
		return err
	}
	id := paramID[models.PaymentIntentID](r)
	intent, err := c.store.OrganisationPaymentIntent(ctx, r.Principal.OrganisationID, id)
	if err != nil {
		return r.intentError(err)
	}
	party, err := newSandboxParty(ctx, c.store, behaviour)
	if err != nil {
		return err
	}
	return c.start(ctx, r, intent.Code, party, discounts)
}

// startedTransaction is the answer to a request that has begun a payment.
type startedTransaction struct {
	TransactionID models.TransactionID `json:"transactionId"`
}

// start stores the transaction and answers 202. A worker executes the transaction.
func (c *customerPayments) start(
	ctx context.Context, r *Request, code string, party models.Party, discounts []models.Discount,
) error {
	started, err := c.store.StartTransaction(ctx, code, party, discounts)
	if err != nil {
		return r.intentError(err)
	}
	notifyTasks(c.notify, started.Task)
	return r.JSON(http.StatusAccepted, startedTransaction{started.ID})
}

// readDiscounts decodes the discounts of a payment. The store checks them against the payment
// intent.
func readDiscounts(body strictjson.Fields) []models.Discount {
	var discounts []models.Discount
	for _, d := range body.OptionalObjects("discounts", 0, maxDiscounts, "lineItemIndex", "amount", "reason") {
		discounts = append(discounts, models.Discount{
			LineItem: int(d.RequiredInt("lineItemIndex", strictjson.AtLeast(0))),
			Amount:   models.Amount(d.RequiredInt("amount", strictjson.AtLeast(1))),
			Reason:   d.RequiredString("reason", models.ValidateLabel),
		})
	}
	return discounts
}
