package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

func dayCommand(out io.Writer) *cobra.Command {
	var file string
	d := day{out: out}
	cmd := &cobra.Command{
		Use: "day", Args: cobra.NoArgs,
		Short: "Run a partner's billing day over HTTP and check every answer",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := readSandbox(file)
			if err != nil {
				return err
			}
			partner := s.Organisations[0]
			d.site = partner.Sites[0].SiteID
			d.api = client.New(client.Config{
				BaseURL: s.BaseURL, ClientID: partner.ClientID, ClientSecret: partner.ClientSecret, MaxRetries: 60,
			})
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "sandbox", ".svc/sandbox.json", "sandbox.json of svc dev")
	cmd.Flags().IntVar(&d.invited, "invited", 1000, "number of customers to invite; nine of ten sign up")
	return cmd
}

// day is a partner's billing day, run over HTTP against a running `svc dev`: invitations, sign-ups,
// and a batch with its outcomes. Every answer is checked.
type day struct {
	out     io.Writer
	api     *client.Client
	site    string
	invited int // number of customers to invite

	name      string         // of the run; it makes references unique
	batch     client.Batch   // the first batch, with a row for each customer
	receipt   client.Receipt // the first one of the batch
	customers []string       // references of the invited customers
}

// dayBehaviours lists the behaviours that the customers of a day have in rotation.
var dayBehaviours = []models.Behaviour{
	models.BehaviourPays, models.BehaviourPays, models.BehaviourPays, models.BehaviourInsufficientFunds,
	models.BehaviourAccountUnavailable, models.BehaviourLimitExceeded, models.BehaviourDeclines,
	models.BehaviourSlow, models.BehaviourBankDown, models.BehaviourAnswerLost,
}

// debitOutcomes maps the behaviours of the sandbox's customers to the outcome of their debits.
var debitOutcomes = map[models.Behaviour]string{
	models.BehaviourPays:               "succeeded",
	models.BehaviourInsufficientFunds:  "insufficientFunds",
	models.BehaviourAccountUnavailable: "accountUnavailable",
	models.BehaviourLimitExceeded:      "limitExceeded",
	models.BehaviourDeclines:           "declinedByCustomer",
	models.BehaviourSlow:               "succeeded",
	models.BehaviourBankDown:           "succeeded",
	models.BehaviourAnswerLost:         "succeeded",
}

// dayBehaviour returns the behaviour of the customer with the number.
func dayBehaviour(customer int) models.Behaviour { return dayBehaviours[customer%len(dayBehaviours)] }

// signedUp returns the number of invited customers that sign up.
func (d *day) signedUp() int { return d.invited * 9 / 10 }

// run runs the steps of the day, and prints how long each took.
func (d *day) run(ctx context.Context) error {
	began := time.Now()
	d.name = began.UTC().Format("2006-01-02 15:04:05.000")
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"invite the customers", d.invite},
		{"let nine of ten sign up", d.signUp},
		{"walk the list of customers", d.walk},
		{"submit the batch", d.submit},
		{"submit it again, and a different one under its reference", d.resubmit},
		{"wait until every row is settled", d.settle},
		{"submit a second batch and cancel it", d.cancel},
	} {
		at := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(d.out, "%8.2fs  %s\n", time.Since(at).Seconds(), step.name)
	}
	fmt.Fprintf(d.out, "%8.2fs  the whole day, every answer as expected\n", time.Since(began).Seconds())
	return nil
}

// concurrency is the number of concurrent requests of a partner.
const concurrency = 8

// each calls do for every customer with its index and reference, concurrently.
func (d *day) each(
	ctx context.Context, customers []string, do func(ctx context.Context, i int, reference string) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i, reference := range customers {
		group.Go(func() error { return do(ctx, i, reference) })
	}
	return group.Wait()
}

func (d *day) invite(ctx context.Context) error {
	for i := range d.invited {
		d.customers = append(d.customers, fmt.Sprintf("%s/customer %d", d.name, i))
	}
	return d.each(ctx, d.customers, func(ctx context.Context, _ int, reference string) error {
		invitation := client.NewInvitation{CustomerReference: reference}
		in, err := d.api.CreateInvitation(ctx, d.site, invitation, url.QueryEscape(reference))
		if err == nil && (in.State != "invited" || in.SignupURL == "" || in.CustomerReference != reference) {
			err = fmt.Errorf("invitation %+v", in)
		}
		return err
	})
}

func (d *day) signUp(ctx context.Context) error {
	return d.each(ctx, d.customers[:d.signedUp()], func(ctx context.Context, i int, reference string) error {
		customer, err := d.api.SignUp(ctx, d.site, reference, string(dayBehaviour(i)))
		if err == nil && (customer.State != "linked" || customer.LinkedAt == 0) {
			err = fmt.Errorf("customer %+v", customer)
		}
		return err
	})
}

// walk reads the list of customers, and checks its order and their states.
func (d *day) walk(ctx context.Context) error {
	first, err := d.api.Customer(ctx, d.site, d.customers[0])
	if err != nil {
		return err
	}
	invited := map[string]string{} // states by reference
	for _, c := range d.customers {
		invited[c] = ""
	}
	seen, last := 0, int64(0)
	filter := client.CustomerFilter{InvitedFrom: first.InvitedAt - 60_000, Limit: 100}
	for customer, err := range d.api.Customers(ctx, d.site, filter) {
		if err != nil {
			return err
		}
		if last != 0 && customer.InvitedAt > last {
			return errors.New("the list is not ordered by invitedAt, descending")
		}
		last = customer.InvitedAt
		if _, ok := invited[customer.CustomerReference]; ok {
			seen++
			invited[customer.CustomerReference] = customer.State
		}
	}
	states := map[string]int{}
	for _, state := range invited {
		states[state]++
	}
	want := map[string]int{"linked": d.signedUp(), "invited": d.invited - d.signedUp()}
	if seen != d.invited || !maps.Equal(states, want) {
		return fmt.Errorf("%d of %d customers listed, in states %v", seen, d.invited, states)
	}
	return nil
}

// submit submits the batch and checks the receipt.
func (d *day) submit(ctx context.Context) error {
	d.batch.BatchReference = d.name + " #1"
	for i, reference := range d.customers {
		d.batch.Rows = append(d.batch.Rows, client.Row{
			CustomerReference: reference, RowReference: fmt.Sprintf("row %d", i), Amount: int64(1000 + i),
		})
	}
	var err error
	d.receipt, err = d.submitNew(ctx, d.batch)
	return err
}

// submitNew submits a batch with a new reference, and checks the receipt.
func (d *day) submitNew(ctx context.Context, batch client.Batch) (client.Receipt, error) {
	receipt, err := d.api.SubmitBatch(ctx, d.site, batch)
	if err != nil {
		return receipt, err
	}
	total := int64(0)
	for _, row := range batch.Rows {
		total += row.Amount
	}
	if receipt.BatchReference != batch.BatchReference || receipt.RowCount != len(batch.Rows) ||
		receipt.TotalAmount != total || receipt.State != "inProgress" ||
		receipt.SettleBy-receipt.SubmittedAt != (24*time.Hour).Milliseconds() {
		err = fmt.Errorf("receipt %+v", receipt)
	}
	return receipt, err
}

// resubmit submits the batch again, and then a different one under its reference. The service must
// replay the receipt, and refuse the different batch.
func (d *day) resubmit(ctx context.Context) error {
	again, err := d.api.SubmitBatch(ctx, d.site, d.batch)
	if err != nil {
		return fmt.Errorf("the same batch again: %w", err)
	}
	if !again.Replayed {
		return fmt.Errorf("the same batch again is not marked as replayed: %+v", again)
	}
	want := d.receipt
	want.Replayed, want.TraceID = true, again.TraceID // each answer has its own trace id
	if again != want {
		return fmt.Errorf("the receipt of the same batch again is %+v, want %+v", again, want)
	}
	other := client.Batch{BatchReference: d.batch.BatchReference, Rows: slices.Clone(d.batch.Rows)}
	other.Rows[0].Amount++
	receipt, err := d.api.SubmitBatch(ctx, d.site, other)
	if err == nil {
		return fmt.Errorf("a different batch under the same reference is accepted: %+v", receipt)
	}
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != 409 || len(refused.Faults) != 2 ||
		!client.Has(err, "batches:batch-reference-conflict") || refused.Faults[1].Target != "rows[0].amount" {
		return fmt.Errorf("a different batch under the same reference: %w, want 409 with its target", err)
	}
	return nil
}

// settle waits until the batch is settled, and checks the outcome of every row.
func (d *day) settle(ctx context.Context) error {
	batch, err := d.api.AwaitBatch(ctx, d.site, d.batch.BatchReference)
	if err != nil {
		return err
	}
	succeeded, wrong := int64(0), 0
	for i, row := range batch.Rows {
		want := "customerNotActive"
		if i < d.signedUp() {
			want = debitOutcomes[dayBehaviour(i)]
		}
		if row.Outcome != want || row.State != "settled" {
			wrong++
		}
		if row.Outcome == "succeeded" {
			succeeded += row.Amount
		}
	}
	if wrong > 0 || len(batch.Rows) != d.invited || batch.Counts.Settled != d.invited ||
		batch.SucceededAmount != succeeded {
		return fmt.Errorf("%d of %d rows have a wrong outcome; counts %+v", wrong, len(batch.Rows), batch.Counts)
	}
	return nil
}

// cancel submits a second batch and cancels it. The answer must show no pending row, and all rows
// must settle. Rows that the answer shows as settled keep their outcome.
func (d *day) cancel(ctx context.Context) error {
	batch := client.Batch{BatchReference: d.name + " #2", Rows: d.batch.Rows}
	receipt, err := d.submitNew(ctx, batch)
	if err != nil {
		return err
	}
	answer, err := d.api.CancelBatch(ctx, d.site, batch.BatchReference)
	if err != nil {
		return err
	}
	if err := checkCancelled(answer, batch, receipt); err != nil {
		return fmt.Errorf("the answer to the cancellation: %w", err)
	}
	done, err := d.api.AwaitBatch(ctx, d.site, batch.BatchReference)
	if err != nil {
		return err
	}
	if err := checkCancelled(done, batch, receipt); err != nil {
		return fmt.Errorf("the cancelled batch: %w", err)
	}
	if done.Counts.Settled != d.invited || done.Counts.Pending+done.Counts.InProgress != 0 {
		return fmt.Errorf("the counts of the cancelled batch are %+v", done.Counts)
	}
	for i, row := range answer.Rows {
		if row.State == "settled" && done.Rows[i].Outcome != row.Outcome {
			return fmt.Errorf("row %d of the cancelled batch was %s and is %s", i, row.Outcome, done.Rows[i].Outcome)
		}
	}
	return nil
}

// checkCancelled returns an error unless the answer about a cancelled batch agrees with the
// submission and its receipt, and shows no pending row.
func checkCancelled(got client.BatchStatus, batch client.Batch, receipt client.Receipt) error {
	if got.BatchReference != batch.BatchReference || got.SubmittedAt != receipt.SubmittedAt ||
		got.SettleBy != receipt.SettleBy || got.TotalAmount != receipt.TotalAmount || len(got.Rows) != len(batch.Rows) {
		return fmt.Errorf("%s with %d rows, a total of %d and the times %d and %d does not agree with the receipt %+v",
			got.BatchReference, len(got.Rows), got.TotalAmount, got.SubmittedAt, got.SettleBy, receipt)
	}
	for i, row := range got.Rows {
		if !shows(row, batch.Rows[i]) {
			return fmt.Errorf("row %d was submitted as %+v and is %+v", i, batch.Rows[i], row)
		}
		if row.State == "pending" {
			return fmt.Errorf("row %d is pending", i)
		}
	}
	return nil
}
