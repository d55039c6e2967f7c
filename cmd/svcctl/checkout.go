package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mdp/qrterminal/v3"
	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

func (c *ctl) intentCommand() *cobra.Command {
	var order string
	var wait time.Duration
	const short = "Create a payment intent of AMOUNT cents, show its QR code, and wait for the payment"
	cmd := c.command("intent AMOUNT", short,
		cobra.ExactArgs(1), func(ctx context.Context, api *client.Client, site string, args []string) error {
			amount, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return errors.New("AMOUNT must be a whole number of cents")
			}
			intent, err := api.CreatePaymentIntent(ctx, site,
				client.NewPaymentIntent{Amount: amount, OrderID: order, QRCodeFormat: "text"}, "")
			if err != nil {
				return err
			}
			qrterminal.GenerateHalfBlock(intent.QRCode, qrterminal.M, c.out)
			fmt.Fprintf(c.out, "%s\n%s\n", intent.PaymentIntentID, intent.QRCode)
			return c.awaitPayment(ctx, api, site, intent.PaymentIntentID, wait)
		})
	cmd.Flags().StringVar(&order, "order", "", "your orderId")
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Minute, "maximum wait for the payment")
	return cmd
}

func (c *ctl) awaitPayment(ctx context.Context, api *client.Client, site, id string, within time.Duration) error {
	const step = 20 * time.Second
	for left := within; left > 0; left -= step {
		intent, err := api.PaymentIntent(ctx, site, id, min(step, left))
		if err != nil {
			return err
		}
		if intent.State == "final" {
			fmt.Fprintln(c.out, intent.TransactionStatus)
			return nil
		}
	}
	return nil
}

func (c *ctl) receiveCommand() *cobra.Command {
	var listen, secret string
	cmd := &cobra.Command{
		Use: "receive", Short: "Receive webhooks at an address, verify them and print them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSecret(secret); err != nil {
				return err
			}
			ln, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return err
			}
			return c.receive(cmd.Context(), ln, secret)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9000", "address to listen on")
	cmd.Flags().StringVar(&secret, "secret", "", "your organisation's webhook secret, whsec_…")
	_ = cmd.MarkFlagRequired("secret")
	return cmd
}

var errNotASecret = errors.New("--secret must be whsec_ and 32 bytes in standard base64, as the API returned it; " +
	"if it is lost, rotate it: POST /webhooks/secret/rotation")

// checkSecret returns errNotASecret if a string cannot be a webhook secret. The error does not
// contain the string.
func checkSecret(secret string) error {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) != sha256.Size || base64.StdEncoding.EncodeToString(key) != encoded {
		return errNotASecret
	}
	return nil
}

// receive serves until ctx ends.
func (c *ctl) receive(ctx context.Context, ln net.Listener, secret string) error {
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		if err := c.show(secret, r.Header.Get(client.SignatureHeader), body); err != nil {
			http.Error(w, "invalid signature", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(handler)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Fprintf(c.out, "receiving at http://%s\n", ln.Addr())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// show verifies a notification, and prints it or the reason for its refusal.
func (c *ctl) show(secret, signature string, body []byte) error {
	n, err := client.VerifyNotification(secret, signature, body)
	if err != nil {
		fmt.Fprintln(c.out, "REFUSED:", err)
		return err
	}
	fmt.Fprintf(c.out, "verified: %s is %s, order %q, paid %d\n",
		n.PaymentIntentID, n.TransactionStatus, n.OrderID, n.AmountPaid)
	return nil
}

func (c *ctl) listenCommand() *cobra.Command {
	var secret string
	cmd := c.command("listen", "Print webhooks as they occur, without an endpoint", cobra.NoArgs,
		func(ctx context.Context, api *client.Client, _ string, _ []string) error {
			if secret != "" {
				if err := checkSecret(secret); err != nil {
					return err
				}
			}
			for delivery, err := range api.Listen(ctx) {
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				if secret != "" {
					// show prints the error
					_ = c.show(secret, delivery.Headers["x-svc-signature"], []byte(delivery.Body))
				} else {
					fmt.Fprintln(c.out, delivery.Body)
				}
			}
			return nil
		})
	cmd.Flags().StringVar(&secret, "secret", "", "verify signatures with this webhook secret, whsec_…")
	return cmd
}
