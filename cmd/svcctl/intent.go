package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mdp/qrterminal/v3"
	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// followIntent extends svcctl intents create. It adds the flags --qr and --wait, and returns the
// function that follows the call: it shows the QR code in the terminal, and waits for the payment.
func followIntent(_ *ctl, cmd *cobra.Command) func(context.Context, *operationRun, json.RawMessage) error {
	var qr bool
	var wait time.Duration
	cmd.Flags().BoolVar(&qr, "qr", false, "show the QR code in the terminal")
	cmd.MarkFlagsMutuallyExclusive("qr", "qr-code-format") // --qr needs the default format
	cmd.Flags().DurationVar(&wait, "wait", 0,
		"maximum wait for the payment, by default none; the exit code is 8 unless it is Settled")
	return func(ctx context.Context, run *operationRun, data json.RawMessage) error {
		var created client.CreatedPaymentIntent
		if err := json.Unmarshal(data, &created); err != nil {
			return err
		}
		if qr {
			qrterminal.GenerateHalfBlock(created.QRCode, qrterminal.M, run.errOut)
		}
		if wait <= 0 {
			return nil
		}
		return run.awaitPayment(ctx, created.PaymentIntentID, wait)
	}
}

// awaitPayment waits until a payment intent is final, and prints its status. It fails with
// exitIncomplete if the payment has not settled within wait.
func (run *operationRun) awaitPayment(ctx context.Context, id string, wait time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	intent, err := run.api.AwaitPaymentIntent(waiting, run.site, id)
	switch {
	case errors.Is(waiting.Err(), context.DeadlineExceeded) && intent.State != client.IntentFinal:
		return fail(exitIncomplete, "%s is not final after %v", id, wait)
	case err != nil:
		return err
	}
	fmt.Fprintf(run.errOut, "%s is %s\n", id, intent.TransactionStatus)
	if intent.TransactionStatus != client.StatusSettled {
		return fail(exitIncomplete, "%s is %s", id, intent.TransactionStatus)
	}
	return nil
}

// checkTest extends svcctl endpoints test. The returned function follows the call, and fails if the
// test event was not delivered.
func checkTest(*ctl, *cobra.Command) func(context.Context, *operationRun, json.RawMessage) error {
	return func(_ context.Context, _ *operationRun, data json.RawMessage) error {
		var test client.WebhookTest
		if err := json.Unmarshal(data, &test); err != nil {
			return err
		}
		if test.Status != "delivered" {
			return fail(exitIncomplete, "the test event was not delivered to %s", test.URL)
		}
		return nil
	}
}
