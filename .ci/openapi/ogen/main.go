// Command ogen tests the client that ogen generates: it debits a customer in a batch and pays a
// payment intent. The environment names the service: BASE_URL, CLIENT_ID, CLIENT_SECRET and SITE.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"partnerbilling/ci/openapi/ogen/generated"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ogen:", err)
		os.Exit(1)
	}
}

// bearer gives requests an access token.
type bearer struct{ token string }

// Token implements generated.SecuritySource.
func (b *bearer) Token(context.Context, generated.OperationName) (generated.Token, error) {
	return generated.Token{Token: b.token}, nil
}

func run(ctx context.Context) error {
	source := &bearer{}
	c, err := generated.NewClient(os.Getenv("BASE_URL"), source)
	if err != nil {
		return err
	}
	answer, err := c.IssueToken(ctx, &generated.TokenRequest{
		GrantType:    "client_credentials",
		ClientID:     generated.NewOptString(os.Getenv("CLIENT_ID")),
		ClientSecret: generated.NewOptString(os.Getenv("CLIENT_SECRET")),
	})
	issued, err := as[*generated.AccessTokenHeaders]("issueToken", answer, err)
	if err != nil {
		return err
	}
	source.token = issued.Response.AccessToken
	site := os.Getenv("SITE")
	if err := debit(ctx, c, site); err != nil {
		return err
	}
	return pay(ctx, c, site)
}

// debit invites a customer, signs the customer up, and submits a batch with a debit. It returns
// once the batch has settled. The references test whether the client escapes them in paths.
func debit(ctx context.Context, c *generated.Client, site string) error {
	const customer, batch = "ogen ü", "ogen 2026/11 #7+é"
	invited, err := c.CreateInvitation(ctx, &generated.CreateInvitation{CustomerReference: customer},
		generated.CreateInvitationParams{SiteId: site, IdempotencyKey: generated.NewOptString("ogen")})
	if _, err := as[*generated.InvitationEnvelopeHeaders]("createInvitation", invited, err); err != nil {
		return err
	}
	signed, err := c.SignUpInSandbox(ctx, generated.OptSignUpInSandbox{},
		generated.SignUpInSandboxParams{SiteId: site, CustomerReference: customer})
	linked, err := as[*generated.SignUpInSandboxOKHeaders]("signUpInSandbox", signed, err)
	if err != nil {
		return err
	}
	if linked.Response.Data.State != generated.LinkStateLinked {
		return fmt.Errorf("signUpInSandbox: %+v", linked.Response)
	}
	submitted, err := c.SubmitBatch(ctx, &generated.BatchSubmission{
		BatchReference: batch,
		Rows:           []generated.NewBatchRow{{CustomerReference: customer, RowReference: "row", Amount: 1250}},
	}, generated.SubmitBatchParams{SiteId: site})
	if _, err := as[*generated.BatchReceiptEnvelopeHeaders]("submitBatch", submitted, err); err != nil {
		return err
	}
	for {
		answer, err := c.GetBatch(ctx, generated.GetBatchParams{
			SiteId: site, BatchReference: batch, Prefer: generated.NewOptString("wait=10"),
		})
		got, err := as[*generated.BatchEnvelopeHeaders]("getBatch", answer, err)
		if err != nil {
			return err
		}
		if got.Response.Data.State != generated.BatchStateSettled {
			continue
		}
		if row := got.Response.Data.Rows[0]; row.Outcome.Value != generated.RowOutcomeSucceeded {
			return fmt.Errorf("getBatch: %+v", row)
		}
		return nil
	}
}

// pay first provokes a 404 and checks its message. Then it creates a payment intent, has a customer
// of the sandbox pay it, and waits until the payment has settled.
func pay(ctx context.Context, c *generated.Client, site string) error {
	unknown, err := c.GetPaymentIntent(ctx, generated.GetPaymentIntentParams{SiteId: site, PaymentIntentId: "pi_unknown"})
	if refused, err := as[*generated.GetPaymentIntentNotFound]("getPaymentIntent", unknown, err); err != nil {
		return err
	} else if refused.Errors[0].Message != "There is no such payment intent." {
		return fmt.Errorf("getPaymentIntent: %+v", refused)
	}
	answer, err := c.CreatePaymentIntent(ctx, &generated.CreatePaymentIntent{
		Amount: 950, OrderId: generated.NewOptNilReference("ogen"),
	}, generated.CreatePaymentIntentParams{SiteId: site})
	created, err := as[*generated.CreatedPaymentIntentEnvelopeHeaders]("createPaymentIntent", answer, err)
	if err != nil {
		return err
	}
	id := string(created.Response.Data.PaymentIntentId)
	paid, err := c.PayInSandbox(ctx, generated.OptPayInSandbox{}, generated.PayInSandboxParams{PaymentIntentId: id})
	if _, err := as[*generated.StartedPaymentEnvelopeHeaders]("payInSandbox", paid, err); err != nil {
		return err
	}
	for {
		answer, err := c.GetPaymentIntent(ctx, generated.GetPaymentIntentParams{
			SiteId: site, PaymentIntentId: id, Prefer: generated.NewOptString("wait=10"),
		})
		got, err := as[*generated.PaymentIntentEnvelopeHeaders]("getPaymentIntent", answer, err)
		if err != nil {
			return err
		}
		intent := got.Response.Data
		if intent.State != generated.IntentStateFinal {
			continue
		}
		if intent.TransactionStatus.Value != generated.TransactionStatusSettled || intent.AmountPaid.Value != 950 {
			return fmt.Errorf("getPaymentIntent: %+v", intent)
		}
		return nil
	}
}

// as returns the answer of an operation as a T. It fails if err is set, or if the answer has
// another type: ogen has a type for each answer of an operation, refusals included.
func as[T any](operation string, answer any, err error) (T, error) {
	expected, ok := answer.(T)
	if err != nil {
		return expected, fmt.Errorf("%s: %w", operation, err)
	}
	if !ok {
		return expected, fmt.Errorf("%s: %T %+v", operation, answer, answer)
	}
	return expected, nil
}
