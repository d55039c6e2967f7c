package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// scenario makes something happen in the sandbox that leads to a webhook event.
type scenario struct {
	short string // the text in the help
	event string // the type of the event
	// play makes it happen. It returns the traceId of the request that leads to the event.
	play func(ctx context.Context, t *trigger) (traceID string, err error)
}

// scenarios are the scenarios by their name, the argument of svcctl trigger.
var scenarios = map[string]scenario{
	"payment": {"a customer pays", client.EventTransactionStatus, payIntent("")},
	"declined": {"a customer declines a payment", client.EventTransactionStatus,
		payIntent("declines")},
	"insufficientFunds": {"a payment is declined for lack of money", client.EventTransactionStatus,
		payIntent("insufficientFunds")},
	"cancelled":       {"a payment intent is cancelled", client.EventTransactionStatus, cancelIntent},
	"expired":         {"a payment intent expires", client.EventTransactionStatus, expireIntent},
	"batch":           {"a batch of three rows settles, two of which fail", client.EventBatchSettled, settleBatch},
	"customerLinked":  {"a customer signs up", client.EventCustomerLinked, linkCustomer},
	"customerRevoked": {"a link is revoked", client.EventCustomerRevoked, revokeCustomer},
	"customerExpired": {"an invitation expires", client.EventCustomerExpired, expireCustomer},
}

// trigger is a run of svcctl trigger.
type trigger struct {
	*ctl
	api     *client.Client
	site    string
	amount  int64  // of a payment or a row, in minor units
	advance bool   // move the sandbox's clock instead of waiting
	name    string // unique; references and order ids are made of it
}

// triggerCommand returns `svcctl trigger`, which plays a scenario in the sandbox and prints the key
// of the event that it leads to.
func (c *ctl) triggerCommand() *cobra.Command {
	t := &trigger{ctl: c}
	var wait time.Duration
	names := slices.Sorted(maps.Keys(scenarios))
	var list strings.Builder
	for _, name := range names {
		fmt.Fprintf(&list, "  %-18s %s\n", name, scenarios[name].short)
	}
	cmd := &cobra.Command{
		Use: "trigger EVENT", Short: "Make something happen in the sandbox that leads to a webhook event",
		Long: "Make something happen in the sandbox through the public API, and print the key of its event:\n\n" +
			list.String() + `
A final status always has an event. The others have one if the endpoint of the Site asks for them:
svcctl endpoints put … --events. Expiry takes a minute or more; with --advance-clock it takes none,
but the clock moves for everything in the sandbox.`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if t.api, t.site, err = c.connectSite(cmd.Context()); err != nil {
				return err
			}
			return t.run(cmd.Context(), scenarios[args[0]], wait)
		},
	}
	cmd.Flags().Int64Var(&t.amount, "amount", 1250, "amount of a payment or a row, in minor units")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "maximum wait for the event")
	cmd.Flags().BoolVar(&t.advance, "advance-clock", false, "move the sandbox's clock instead of waiting for an expiry")
	return cmd
}

// run plays a scenario, prints its traceId, and waits for the event. If the endpoint does not ask
// for the type of event, it does not wait.
func (t *trigger) run(ctx context.Context, s scenario, wait time.Duration) error {
	t.name = "trigger-" + strings.ToLower(rand.Text()[:8])
	wanted, err := t.wanted(ctx, s.event)
	if err != nil {
		return err
	}
	trace, err := s.play(ctx, t)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "trace    %s\n", trace)
	if !wanted {
		fmt.Fprintf(t.errOut, "no event: the endpoint does not ask for %s; see svcctl endpoints put --events\n",
			s.event)
		return nil
	}
	return t.awaitEvent(ctx, trace, s.event, wait)
}

// wanted reports whether the Site's webhook endpoint, or else the default one, asks for a type of
// event. Every endpoint gets final statuses.
func (t *trigger) wanted(ctx context.Context, event string) (bool, error) {
	if event == client.EventTransactionStatus {
		return true, nil
	}
	endpoints, err := t.api.WebhookEndpoints(ctx)
	if err != nil {
		return false, err
	}
	of := map[string][]string{}
	for _, e := range endpoints {
		of[e.Endpoint] = e.Events
	}
	events, own := of[t.site]
	if !own {
		events = of[client.DefaultEndpoint]
	}
	return slices.Contains(events, event), nil
}

// awaitEvent waits until the trace of a request contains an event of a type, and prints the event.
func (t *trigger) awaitEvent(ctx context.Context, traceID, event string, wait time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		trace, err := t.api.Trace(waiting, traceID)
		for _, e := range trace.Events {
			if e.Type == event {
				fmt.Fprintf(t.out, "event    %s  %s, %s\n", e.IdempotencyKey, e.Type, e.Status)
				return nil
			}
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fail(exitIncomplete, "there is no %s event after %v; svcctl trace %s shows what happened", event,
				wait, traceID)
		case <-time.After(250 * time.Millisecond):
		}
		if err != nil && waiting.Err() == nil {
			return err
		}
	}
}

// made prints a line about an object that a scenario has created, such as a customer.
func (t *trigger) made(kind, name, detail string) {
	fmt.Fprintf(t.out, "%-8s %s  %s\n", kind, name, detail)
}

// createIntent creates a payment intent. A lifetime of 0 means the default of the API.
func (t *trigger) createIntent(ctx context.Context, lifetime time.Duration) (client.CreatedPaymentIntent, error) {
	in := client.NewPaymentIntent{Amount: t.amount, OrderID: t.name, QRCodeFormat: "text"}
	if lifetime > 0 {
		now, err := t.serviceTime(ctx)
		if err != nil {
			return client.CreatedPaymentIntent{}, err
		}
		in.ExpiresAt = now + lifetime.Milliseconds()
	}
	return t.api.CreatePaymentIntent(ctx, t.site, in, "")
}

// payIntent returns a function for scenario.play: a customer of the sandbox with a behaviour starts
// to pay a new payment intent. With the behaviour "" the payment succeeds.
func payIntent(behaviour string) func(context.Context, *trigger) (string, error) {
	return func(ctx context.Context, t *trigger) (string, error) {
		created, err := t.createIntent(ctx, 0)
		if err != nil {
			return "", err
		}
		if _, err := t.api.PayInSandbox(ctx, created.PaymentIntentID, behaviour); err != nil {
			return "", err
		}
		final, err := t.api.AwaitPaymentIntent(ctx, t.site, created.PaymentIntentID)
		t.made("intent", created.PaymentIntentID, final.TransactionStatus)
		return created.TraceID, err
	}
}

// cancelIntent creates a payment intent and cancels it.
func cancelIntent(ctx context.Context, t *trigger) (string, error) {
	created, err := t.createIntent(ctx, 0)
	if err != nil {
		return "", err
	}
	cancelled, err := t.api.CancelPaymentIntent(ctx, t.site, created.PaymentIntentID)
	t.made("intent", created.PaymentIntentID, cancelled.TransactionStatus)
	return created.TraceID, err
}

// The shortest lifetimes that the API accepts, plus five seconds for the request.
const (
	intentLifetime     = time.Minute + 5*time.Second
	invitationLifetime = 5*time.Minute + 5*time.Second
)

// expireIntent creates a payment intent and lets it expire.
func expireIntent(ctx context.Context, t *trigger) (string, error) {
	created, err := t.createIntent(ctx, intentLifetime)
	if err != nil {
		return "", err
	}
	t.made("intent", created.PaymentIntentID, "expires")
	if err := t.pass(ctx, intentLifetime); err != nil {
		return "", err
	}
	_, err = t.api.AwaitPaymentIntent(ctx, t.site, created.PaymentIntentID)
	return created.TraceID, err
}

// serviceTime returns the service's time in Unix ms. The sandbox's clock may be ahead of real time.
func (t *trigger) serviceTime(ctx context.Context) (int64, error) {
	now, _, err := t.api.Clock(ctx)
	if client.Has(err, "requests:not-found") { // the clock of this sandbox cannot be moved
		return time.Now().UnixMilli(), nil
	}
	return now, err
}

// pass lets time pass: with --advance-clock it moves the sandbox's clock, else it waits.
func (t *trigger) pass(ctx context.Context, span time.Duration) error {
	if t.advance {
		_, err := t.api.AdvanceClock(ctx, span)
		return err
	}
	fmt.Fprintf(t.errOut, "waiting %v; --advance-clock moves the clock instead\n", span)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
		return nil
	}
}

// noSignUp, as a behaviour, means that the customer does not sign up.
const noSignUp = "-"

// invite invites a customer under the reference t.name+suffix. Unless behaviour is noSignUp, the
// customer then signs up with an account of that behaviour; "" means that the account pays.
// expiresAt is in Unix ms; 0 means the default of the API.
func (t *trigger) invite(ctx context.Context, suffix, behaviour string, expiresAt int64) (client.Invitation, error) {
	reference := t.name + suffix
	in := client.NewInvitation{CustomerReference: reference, ExpiresAt: expiresAt}
	invitation, err := t.api.CreateInvitation(ctx, t.site, in, "")
	if err != nil {
		return invitation, err
	}
	state := invitation.State
	if behaviour != noSignUp {
		customer, err := t.api.SignUp(ctx, t.site, reference, behaviour)
		if err != nil {
			return invitation, err
		}
		state = customer.State
	}
	t.made("customer", reference, state)
	return invitation, nil
}

// linkCustomer invites a customer, who signs up.
func linkCustomer(ctx context.Context, t *trigger) (string, error) {
	invitation, err := t.invite(ctx, "", "", 0)
	return invitation.TraceID, err
}

// revokeCustomer invites a customer, who signs up, and revokes the customer's link.
func revokeCustomer(ctx context.Context, t *trigger) (string, error) {
	invitation, err := t.invite(ctx, "", "", 0)
	if err == nil {
		_, err = t.api.RevokeCustomer(ctx, t.site, invitation.CustomerReference)
	}
	return invitation.TraceID, err
}

// expireCustomer invites a customer, and lets the invitation expire.
func expireCustomer(ctx context.Context, t *trigger) (string, error) {
	now, err := t.serviceTime(ctx)
	if err != nil {
		return "", err
	}
	invitation, err := t.invite(ctx, "", noSignUp, now+invitationLifetime.Milliseconds())
	if err == nil {
		err = t.pass(ctx, invitationLifetime)
	}
	return invitation.TraceID, err
}

// settleBatch submits a batch of three rows and waits until it is settled. One debit succeeds, one
// fails for lack of money, and one is declined.
func settleBatch(ctx context.Context, t *trigger) (string, error) {
	batch := client.Batch{BatchReference: t.name}
	for _, behaviour := range []string{"", "insufficientFunds", "declines"} {
		suffix := "-" + cmp.Or(behaviour, "pays")
		invitation, err := t.invite(ctx, suffix, behaviour, 0)
		if err != nil {
			return "", err
		}
		batch.Rows = append(batch.Rows, client.Row{
			CustomerReference: invitation.CustomerReference, RowReference: suffix[1:], Amount: t.amount,
		})
	}
	receipt, err := t.api.SubmitBatch(ctx, t.site, batch)
	if err != nil {
		return "", err
	}
	settled, err := t.api.AwaitBatch(ctx, t.site, t.name)
	t.made("batch", t.name, fmt.Sprintf("%d of %d succeeded", settled.Counts.Succeeded, settled.RowCount))
	return receipt.TraceID, err
}
