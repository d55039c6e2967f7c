package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// receiveCommand returns `svcctl receive`, a receiver of webhooks for tests. It verifies each
// webhook, and prints a line about it.
func (c *ctl) receiveCommand() *cobra.Command {
	var listen string
	var secrets []string
	cmd := &cobra.Command{
		Use: "receive", Short: "Receive webhooks at an address, verify them and print them", Args: cobra.NoArgs,
		Long:    "Receive webhooks at an address, verify them and print them.\n\n" + secretHelp,
		Example: "  WEBHOOK_SECRET=$SECRET svcctl receive --listen 127.0.0.1:9000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			secrets, err := c.webhookSecrets(secrets)
			if err != nil {
				return err
			}
			if len(secrets) == 0 {
				return errNoSecret
			}
			ln, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return err
			}
			return c.receive(cmd.Context(), ln, secrets)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9000", "address to listen on")
	cmd.Flags().StringArrayVar(&secrets, "secret", nil,
		"your webhook secret, whsec_… or @FILE (default WEBHOOK_SECRET and WEBHOOK_NEXT_SECRET); may be repeated")
	return cmd
}

// receive receives webhooks on ln until ctx ends. It answers 204 to a webhook under one of the
// secrets, and prints the reason of each refusal.
func (c *ctl) receive(ctx context.Context, ln net.Listener, secrets []string) error {
	out := &lineWriter{out: c.out}
	verified := client.WebhookHandler(func(_ context.Context, e client.Event) error {
		out.println("verified: " + describe(e))
		return nil
	}, secrets...)
	handler := func(w http.ResponseWriter, r *http.Request) {
		recorder := &refusalRecorder{ResponseWriter: w}
		verified.ServeHTTP(recorder, r)
		if recorder.reason != "" {
			out.println("REFUSED: " + recorder.reason)
		}
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, Handler: http.HandlerFunc(handler),
	}
	out.println(fmt.Sprintf("receiving at http://%s", ln.Addr()))
	return serveUntil(ctx, server, ln)
}

// serveUntil serves until ctx ends. Open requests then have five seconds to finish.
func serveUntil(ctx context.Context, server *http.Server, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(ending)
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// lineWriter writes whole lines for concurrent callers.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

// println writes a line, without control characters.
func (w *lineWriter) println(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(w.out, printable(line))
}

// refusalRecorder keeps the body of an error response, which says why a webhook was refused.
type refusalRecorder struct {
	http.ResponseWriter
	refused bool   // the status is 400 or above
	reason  string // the body; "" unless refused
}

// WriteHeader implements http.ResponseWriter.
func (r *refusalRecorder) WriteHeader(status int) {
	r.refused = status >= http.StatusBadRequest
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *refusalRecorder) Write(b []byte) (int, error) {
	if r.refused {
		r.reason += strings.TrimSpace(string(b))
	}
	return r.ResponseWriter.Write(b)
}

// describe returns a line about an event: its subject with its new state. Amounts are in minor
// units.
func describe(e client.Event) string {
	var text string
	switch {
	case e.Status != nil:
		text = fmt.Sprintf("%s is %s, order %q, paid %d", e.Status.PaymentIntentID, e.Status.TransactionStatus,
			e.Status.OrderID, e.Status.AmountPaid)
	case e.Batch != nil:
		text = fmt.Sprintf("%s: batch %q, %d of %d succeeded, %d", e.Type, e.Batch.BatchReference,
			e.Batch.Counts.Succeeded, e.Batch.RowCount, e.Batch.SucceededAmount)
	case e.Row != nil:
		text = fmt.Sprintf("%s: batch %q, row %q is %s", e.Type, e.BatchReference, e.Row.RowReference,
			e.Row.CorrectedOutcome)
	case e.Customer != nil:
		text = fmt.Sprintf("%s: customer %q is %s", e.Type, e.Customer.CustomerReference, e.Customer.State)
	default:
		text = fmt.Sprintf("%s: %s", e.Type, e.IdempotencyKey)
	}
	if e.Test {
		text += " (test)"
	}
	return text
}
