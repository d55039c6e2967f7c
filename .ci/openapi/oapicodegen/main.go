// Command oapicodegen tests the client that oapi-codegen generates: it debits a customer in a batch
// and pays a payment intent. The environment names the service: BASE_URL, CLIENT_ID, CLIENT_SECRET
// and SITE.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"partnerbilling/ci/openapi/oapicodegen/generated"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "oapi-codegen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	base := os.Getenv("BASE_URL")
	token, err := issueToken(ctx, base)
	if err != nil {
		return err
	}
	authorize := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	c, err := generated.NewClientWithResponses(base, generated.WithRequestEditorFn(authorize))
	if err != nil {
		return err
	}
	site := os.Getenv("SITE")
	if err := debit(ctx, c, site); err != nil {
		return err
	}
	return pay(ctx, c, site)
}

// issueToken returns an access token of the client that the environment names.
func issueToken(ctx context.Context, base string) (string, error) {
	c, err := generated.NewClientWithResponses(base)
	if err != nil {
		return "", err
	}
	id, secret := os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET")
	answer, err := c.IssueTokenWithFormdataBodyWithResponse(ctx, generated.TokenRequest{
		GrantType: generated.TokenRequestGrantTypeClientCredentials, ClientId: &id, ClientSecret: &secret,
	})
	if err != nil {
		return "", err
	}
	if answer.JSON200 == nil {
		return "", unexpected("issueToken", answer.HTTPResponse, answer.Body)
	}
	return answer.JSON200.AccessToken, nil
}

// debit invites a customer, signs the customer up, and submits a batch with a debit. It returns
// once the batch has settled.
func debit(ctx context.Context, c *generated.ClientWithResponses, site string) error {
	// The references test whether the client escapes them in paths.
	const customer, batch = "oapi-codegen ü", "oapi-codegen 2026/11 #7+é"
	key := "oapi-codegen"
	invited, err := c.CreateInvitationWithResponse(ctx, site,
		&generated.CreateInvitationParams{IdempotencyKey: &key},
		generated.CreateInvitation{CustomerReference: customer})
	if err != nil {
		return err
	}
	if invited.JSON201 == nil || invited.JSON201.Data.SignupUrl == "" {
		return unexpected("createInvitation", invited.HTTPResponse, invited.Body)
	}
	linked, err := c.SignUpInSandboxWithResponse(ctx, site, customer, generated.SignUpInSandbox{})
	if err != nil {
		return err
	}
	if linked.JSON200 == nil || linked.JSON200.Data.State != generated.LinkStateLinked {
		return unexpected("signUpInSandbox", linked.HTTPResponse, linked.Body)
	}
	submitted, err := c.SubmitBatchWithResponse(ctx, site, nil, generated.BatchSubmission{
		BatchReference: batch,
		Rows:           []generated.NewBatchRow{{CustomerReference: customer, RowReference: "row", Amount: 1250}},
	})
	if err != nil {
		return err
	}
	if submitted.JSON202 == nil || submitted.JSON202.Data.TotalAmount != 1250 {
		return unexpected("submitBatch", submitted.HTTPResponse, submitted.Body)
	}
	prefer := "wait=10"
	for {
		got, err := c.GetBatchWithResponse(ctx, site, batch, &generated.GetBatchParams{Prefer: &prefer})
		if err != nil {
			return err
		}
		switch {
		case got.JSON200 == nil:
			return unexpected("getBatch", got.HTTPResponse, got.Body)
		case got.JSON200.Data.State != generated.BatchStateSettled:
			continue
		case len(got.JSON200.Data.Rows) != 1 || value(got.JSON200.Data.Rows[0].Outcome) != generated.RowOutcomeSucceeded:
			return unexpected("getBatch", got.HTTPResponse, got.Body)
		}
		return nil
	}
}

// pay first provokes a validation error and checks its message. Then it creates a payment intent,
// has a customer of the sandbox pay it, and waits until the payment has settled.
func pay(ctx context.Context, c *generated.ClientWithResponses, site string) error {
	refused, err := c.CreatePaymentIntentWithResponse(ctx, site, nil, generated.CreatePaymentIntent{})
	if err != nil {
		return err
	}
	if refused.JSON400 == nil || len(refused.JSON400.Errors) != 1 ||
		refused.JSON400.Errors[0].Message != "amount must be greater than 0" {
		return unexpected("createPaymentIntent", refused.HTTPResponse, refused.Body)
	}
	order := "oapi-codegen"
	created, err := c.CreatePaymentIntentWithResponse(ctx, site, nil,
		generated.CreatePaymentIntent{Amount: 950, OrderId: &order})
	if err != nil {
		return err
	}
	if created.JSON201 == nil {
		return unexpected("createPaymentIntent", created.HTTPResponse, created.Body)
	}
	id := created.JSON201.Data.PaymentIntentId
	paid, err := c.PayInSandboxWithResponse(ctx, id, generated.PayInSandbox{})
	if err != nil {
		return err
	}
	if paid.JSON202 == nil {
		return unexpected("payInSandbox", paid.HTTPResponse, paid.Body)
	}
	prefer := "wait=10"
	for {
		got, err := c.GetPaymentIntentWithResponse(ctx, site, id, &generated.GetPaymentIntentParams{Prefer: &prefer})
		if err != nil {
			return err
		}
		switch {
		case got.JSON200 == nil:
			return unexpected("getPaymentIntent", got.HTTPResponse, got.Body)
		case got.JSON200.Data.State != generated.IntentStateFinal:
			continue
		case value(got.JSON200.Data.TransactionStatus) != generated.TransactionStatusSettled ||
			value(got.JSON200.Data.AmountPaid) != 950:
			return unexpected("getPaymentIntent", got.HTTPResponse, got.Body)
		}
		return nil
	}
}

// value returns the value that p points to, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// unexpected returns an error that shows the status and the body of an unexpected answer.
func unexpected(operation string, response *http.Response, body []byte) error {
	return errors.Join(fmt.Errorf("%s: %s", operation, response.Status), errors.New(string(body)))
}
