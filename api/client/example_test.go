package client_test

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"partnerbilling/api/client"
)

func newClient() *client.Client {
	return client.New(client.Config{
		BaseURL: os.Getenv("BASE_URL"), ClientID: os.Getenv("CLIENT_ID"), ClientSecret: os.Getenv("CLIENT_SECRET"),
	})
}

// A batch is submitted, and its failed rows are submitted once more.
func ExampleClient_SubmitBatch() {
	ctx, c, site := context.Background(), newClient(), os.Getenv("SITE")
	batch := client.Batch{BatchReference: "2026/11 rent", Rows: []client.Row{
		{CustomerReference: "tenant-7", RowReference: "flat 7", Amount: 125_000},
	}}
	if _, err := c.SubmitBatch(ctx, site, batch); err != nil {
		panic(err)
	}
	settled, err := c.AwaitBatch(ctx, site, batch.BatchReference)
	if err != nil {
		panic(err)
	}
	for _, row := range settled.Rows {
		fmt.Println(row.RowReference, row.Outcome)
	}
	_, err = c.RetryBatch(ctx, site, batch.BatchReference, "2026/11 rent, second try")
	if client.Has(err, "batches:nothing-to-retry") {
		return
	}
}

// A list is an iterator, which fetches pages as they are needed.
func ExampleClient_Customers() {
	filter := client.CustomerFilter{State: client.LinkLinked}
	for customer, err := range newClient().Customers(context.Background(), os.Getenv("SITE"), filter) {
		if err != nil {
			panic(err)
		}
		fmt.Println(customer.CustomerReference)
	}
}

// A receiver verifies each webhook, and answers so that the service repeats what failed.
func ExampleWebhookHandler() {
	handle := func(ctx context.Context, e client.Event) error {
		if e.Type == client.EventTransactionStatus && e.Status.TransactionStatus == client.StatusSettled {
			return releaseOrder(ctx, e.IdempotencyKey, e.Status.OrderID)
		}
		return nil
	}
	http.Handle("POST /webhooks", client.WebhookHandler(handle, os.Getenv("WEBHOOK_SECRET")))
}

// releaseOrder stands for the partner's own code.
func releaseOrder(context.Context, string, string) error { return nil }
