package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net"
	"os"
	"time"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"
	"github.com/gofiber/fiber/v2"
	"github.com/spf13/cobra"

	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// referenceBase is the base URL in the QR codes of the reference handlers. Like the URL of the
// service, it is short and in capitals.
const referenceBase = "HTTP://127.0.0.1:8080/P/"

// startReference starts this program as a server of the reference handlers, and returns its base
// URL.
func (b *bench) startReference(site models.Site) (*process, string, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return listening(launch("loadgen", own, nil,
		"intents-reference", b.databaseURL, site.ID.String(), site.OrganisationID.String()))
}

func intentsReferenceCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "intents-reference DATABASE SITE ORGANISATION", Args: cobra.ExactArgs(3), Hidden: true,
		Short: "Serve the handlers that loadgen intents compares with",
		RunE: func(cmd *cobra.Command, args []string) error {
			return serveReference(cmd.Context(), out, args[0], args[1], args[2])
		},
	}
}

// serveReference serves the reference handlers until the context ends. They create payment intents
// of the Site in the database.
func serveReference(ctx context.Context, out io.Writer, database, site, organisation string) error {
	// The pool has the default size, as in `svc api`.
	store, err := models.Open(postgres.Config{DSN: database, ApplicationName: "reference"})
	if err != nil {
		return err
	}
	r := &intentReference{db: store.DB().DB}
	if err := errors.Join(r.site.UnmarshalText([]byte(site)),
		r.organisation.UnmarshalText([]byte(organisation))); err != nil {
		return errors.Join(err, store.Close())
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/bare", r.bare)
	app.Post("/naive", r.naive)
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, store.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = app.Shutdown() })
	defer stop()
	fmt.Fprintln(out, "listens on", ln.Addr())
	return errors.Join(app.Listener(ln), store.Close())
}

// intentReference holds the reference handlers, which the scenario intents compares the service
// with. They create payment intents without a token, limits or checks.
type intentReference struct {
	db           *sql.DB
	site         models.SiteID
	organisation models.OrganisationID
}

// referenceIntent is the body of a request.
type referenceIntent struct {
	Amount  int64  `json:"amount"`
	OrderID string `json:"orderId"`
}

// referenceAnswer is the body of an answer.
type referenceAnswer struct {
	QRCode          string `json:"qrCode"`
	PaymentIntentID string `json:"paymentIntentId"`
	OrderID         string `json:"orderId,omitempty"`
}

// bare inserts a row as the service does, and answers with the text of the QR code.
func (r *intentReference) bare(c *fiber.Ctx) error {
	answer, err := r.insert(c)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(answer)
}

// naive inserts a row as the service does, and answers with a picture of the QR code. It encodes
// the picture as the documentation of the encoder shows.
func (r *intentReference) naive(c *fiber.Ctx) error {
	answer, err := r.insert(c)
	if err != nil {
		return err
	}
	code, err := qr.Encode(answer.QRCode, qr.M, qr.Auto)
	if err != nil {
		return err
	}
	if code, err = barcode.Scale(code, 256, 256); err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, code); err != nil {
		return err
	}
	answer.QRCode = "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())
	return c.Status(fiber.StatusCreated).JSON(answer)
}

// insert inserts the payment intent of a request, and returns the answer with the text of the QR
// code.
func (r *intentReference) insert(c *fiber.Ctx) (referenceAnswer, error) {
	var in referenceIntent
	if err := c.BodyParser(&in); err != nil {
		return referenceAnswer{}, err
	}
	id, code, now := models.NewPaymentIntentID(), models.NewIntentCode(), time.Now().UnixMilli()
	_, err := r.db.ExecContext(c.Context(), `
INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, amount, currency, order_id, qr_code_format,
	created_at, expires_at, trace_id)
VALUES ($1, $2, $3, 1, $4, $5, 'AUD', $6, 'text', $7, $8, $9)`,
		r.site, id, r.organisation, code, in.Amount, in.OrderID, now, now+models.DefaultIntentLife.Milliseconds(),
		string(models.NewTraceID()))
	return referenceAnswer{referenceBase + code, id.String(), in.OrderID}, err
}
