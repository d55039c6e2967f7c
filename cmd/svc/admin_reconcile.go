package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/reconcile"
	"partnerbilling/models"
)

// errDifferences makes a reconciliation fail after it has printed differences.
var errDifferences = errors.New("the reconciliation found differences")

// reconcileFlags are the flags of `svc admin reconcile`.
type reconcileFlags struct {
	from, to string
	json     bool
}

// reconcileCommand returns `svc admin reconcile`, which compares the ledger with the rail's list of
// debits for a period.
func (p *program) reconcileCommand() *cobra.Command {
	var f reconcileFlags
	cmd := command("reconcile", "Compare the ledger with the rail's list of debits, both ways",
		func(ctx context.Context, _ []string) error {
			own := func(cfg *Config) models.Deployment { return cfg.deployment(true) }
			return p.withDatabase(ctx, own, func(ctx context.Context, cfg Config, store *models.Store) error {
				return p.reconcile(ctx, &cfg, store, f)
			})
		})
	cmd.Long = "Compare the ledger with the rail's list of debits, both ways: each debit has its ledger entry,\n" +
		"and each entry its debit. Debits of open rows and payments are in flight, and count as no\n" +
		"difference. The command changes nothing. It fails if it finds a difference."
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "earliest time: 2026-01-31 or 2026-01-31T08:00:00Z; default seven days ago")
	flags.StringVar(&f.to, "to", "", "time at which it ends; default: the time up to which the rail's list is complete")
	flags.BoolVar(&f.json, "json", false, "print one JSON object a line")
	return cmd
}

// reconcile compares the ledger with the rail, and prints the differences. Without --from it begins
// models.RailMemory ago. It begins later if the present rail is younger, or if its list of debits
// does not reach back that far.
func (p *program) reconcile(ctx context.Context, cfg *Config, store *models.Store, f reconcileFlags) (err error) {
	ring, err := cfg.keyring()
	if err != nil {
		return err
	}
	store.SetKeyring(ring)
	store.SetRetention(cfg.Retention.periods())
	from, err := parseTime("--from", f.from)
	if err != nil {
		return err
	}
	to, err := parseTime("--to", f.to)
	if err != nil {
		return err
	}
	payments, closeRail, err := cfg.openAdminRail(store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRail()) }()
	state, err := store.Reconciliation(ctx)
	if err != nil {
		return err
	}
	if to == 0 {
		to = state.Now
	}
	report := newReconcileReport(p.stdout, f.json)
	comparer := &reconcile.Comparer{Store: store, Rail: payments, RailConcurrency: cfg.RailConcurrency}
	if from == 0 {
		from = max(state.Now.Add(-models.RailMemory), state.Since, 0)
		forgotten := (*reconcile.ForgottenError)(nil)
		if err = report.run(ctx, comparer, from, to); errors.As(err, &forgotten) && !report.begun {
			// Begin a minute later, because the rail may drop more debits before the second run.
			err = report.run(ctx, comparer, forgotten.CompleteFrom.Add(time.Minute), to)
		}
	} else {
		err = report.run(ctx, comparer, from, to)
	}
	return report.end(err)
}

// openAdminRail creates the rail adapter for a command of svc admin. The returned function closes
// the adapter.
func (c *Config) openAdminRail(store *models.Store) (rail.Rail, func() error, error) {
	if c.railName() == railSandbox {
		return rail.NewSandbox(store), func() error { return nil }, nil
	}
	var client redis.UniversalClient
	if c.RailRate > 0 {
		if c.RedisURL == "" {
			return nil, nil, errors.New("SVC_REDIS_URL must be set: SVC_RAIL_RATE limits the whole fleet")
		}
		address, err := c.redis()
		if err != nil {
			return nil, nil, err
		}
		client = address.Connect()
	}
	gateway, err := c.openGateway(client, nil)
	if err != nil {
		return nil, nil, err
	}
	return gateway, func() error {
		gateway.Close()
		if client == nil {
			return nil
		}
		return client.Close()
	}, nil
}

// reconcileReport prints the differences that need an operator as they are found. It counts all
// differences, and the debits and entries that were compared.
type reconcileReport struct {
	w        io.Writer
	json     *json.Encoder // nil: print text
	begun    bool          // a step was compared
	from, to models.Millis // the period compared so far
	debits   int           // debits of the rail's list that were compared
	entries  int           // ledger entries that were compared
	inFlight int           // differences that pass by themselves
	findings map[models.DifferenceKind]int
}

// newReconcileReport returns a report that writes to w: a line of text for each difference, or a
// line of JSON.
func newReconcileReport(w io.Writer, asJSON bool) *reconcileReport {
	r := &reconcileReport{w: w, findings: map[models.DifferenceKind]int{}}
	if asJSON {
		r.json = json.NewEncoder(w)
		r.json.SetEscapeHTML(false)
	}
	return r
}

// run compares the debits and ledger entries of a period that includes from and excludes to, and
// reports the differences.
func (r *reconcileReport) run(ctx context.Context, c *reconcile.Comparer, from, to models.Millis) error {
	r.from, r.to = from, from
	return c.Compare(ctx, from, to, func(step reconcile.Step) error {
		r.begun = true
		r.to, r.debits, r.entries = step.To, r.debits+step.Debits, r.entries+step.Entries
		for _, d := range step.Differences {
			if err := r.difference(d); err != nil {
				return err
			}
		}
		return nil
	})
}

// differenceLine is a difference as a line of JSON. DebitedAt is in Unix ms; 0: not debited, or
// unknown.
type differenceLine struct {
	Kind      models.DifferenceKind `json:"kind"`
	RailKey   string                `json:"railKey"`
	SiteID    string                `json:"siteId,omitempty"`
	DebitedAt models.Millis         `json:"debitedAt,omitempty"`
	Detail    string                `json:"detail"`
}

// difference prints and counts a difference. It only counts a difference in flight.
func (r *reconcileReport) difference(d models.Difference) error {
	if !d.Kind.IsFinding() {
		r.inFlight++
		return nil
	}
	r.findings[d.Kind]++
	if r.json != nil {
		return r.json.Encode(differenceLine{d.Kind, d.RailKey, orEmpty(d.SiteID), d.DebitedAt, d.Detail})
	}
	_, err := fmt.Fprintf(r.w, "DIFFERENCE: %s: %s: %s\n", d.Kind, printable(d.RailKey), d.Detail)
	return err
}

// remedies say what an operator can do about each kind of difference.
var remedies = map[models.DifferenceKind]string{
	models.DifferenceUnknown: "ask the rail's operator where the debit came from. After a restore, the batch may " +
		"come back under its reference, and then finds its debit. Otherwise have the rail reverse it",
	models.DifferenceUnrecorded: "the partner knows the row or payment as not paid: have the rail reverse the debit",
	models.DifferenceDenied: "the partner knows the row or payment as paid: have the rail's operator look for the " +
		"debit by its key, and settle the amount with the partner",
	models.DifferenceParticulars: "compare with the gateway's books: the operator of the wrong side corrects it",
}

// end prints the sums and, in text, the remedies. err is the error that ended the comparison; nil
// if the comparison is complete. end returns err with the time from which to continue. It adds
// errDifferences if there are differences.
func (r *reconcileReport) end(err error) error {
	total := 0
	for _, n := range r.findings {
		total += n
	}
	if r.json != nil {
		err = errors.Join(err, r.json.Encode(map[string]any{
			"from": r.from, "to": r.to, "debits": r.debits, "entries": r.entries, "inFlight": r.inFlight,
			"differences": total,
		}))
	} else {
		fmt.Fprintf(r.w, "compared %s to %s: %d debits, %d ledger entries; %d in flight, %d differences\n",
			formatTime(r.from), formatTime(r.to), r.debits, r.entries, r.inFlight, total)
		for _, kind := range models.Findings {
			if r.findings[kind] > 0 {
				fmt.Fprintf(r.w, "%s: %s\n", kind, remedies[kind])
			}
		}
	}
	if err != nil && r.begun {
		err = fmt.Errorf("the comparison stopped; continue with --from %s: %w", r.to.Time().Format(time.RFC3339), err)
	}
	if total > 0 {
		err = errors.Join(err, errDifferences)
	}
	return err
}
