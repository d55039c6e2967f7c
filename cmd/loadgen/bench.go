package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"partnerbilling/deploy/local"
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

// bench is the base of a scenario that measures: the flags of all scenarios, and private servers of
// PostgreSQL and Redis. The servers are durable (fsync and synchronous_commit on). Whatever a
// scenario compares runs on the same servers.
type bench struct {
	out  io.Writer
	runs int
	json bool
	svc  string // path of the svc binary; "" for the one beside this program

	calls     *callCounts // calls of the clients that measuringClient returns
	libraries []string    // shared libraries that Postgres loads

	local *local.Servers
	log   *slog.Logger

	// A database on the servers, with its store, and a database of Redis.
	databaseURL, redisURL string
	store                 *models.Store
	redis                 redis.UniversalClient
}

// masterKey is the master key of all processes and stores of a run.
var masterKey = seal.GenerateMasterKey()

// keyring is the ring of masterKey.
func keyring() (*seal.Keyring, error) { return seal.ParseKeyring(masterKey) }

// command returns the command of a scenario, with the flags that all scenarios have. runs is the
// default of --runs. The command calls run and then, even after an error, end.
func (b *bench) command(use, short string, runs int, run func(context.Context) error, end func() error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return errors.Join(run(cmd.Context()), end()) },
	}
	cmd.Flags().IntVar(&b.runs, "runs", runs, "runs of each measurement")
	cmd.Flags().BoolVar(&b.json, "json", false, "print JSON")
	return cmd
}

// addSvcFlag adds the flag for the svc binary.
func (b *bench) addSvcFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.svc, "svc", "", "path of the svc binary (default: beside this program)")
}

// open starts the servers in a temporary directory and connects to them.
func (b *bench) open(ctx context.Context) error {
	b.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	b.calls = &callCounts{}
	var err error
	if b.local, err = local.Temp(ctx, local.Options{Libraries: b.libraries}); err != nil {
		return err
	}
	b.databaseURL, b.redisURL = b.local.DatabaseURL, b.local.RedisURL
	return b.connect(ctx)
}

// connect connects to the database, which it migrates, and to Redis.
func (b *bench) connect(ctx context.Context) (err error) {
	if b.store, err = openStore(ctx, b.databaseURL, 32); err != nil {
		return err
	}
	b.redis, err = queue.ConnectURL(b.redisURL)
	return err
}

// beside returns a second bench on the same servers, with empty databases of its own, so that a
// scenario can compare both in rotation. The caller calls its disconnect before it closes b.
func (b *bench) beside(ctx context.Context) (bench, error) {
	const name = "beside"
	if err := b.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return bench{}, err
	}
	other := *b
	other.store, other.redis = nil, nil
	for address, path := range map[*string]string{&other.databaseURL: name, &other.redisURL: "1"} {
		parsed, err := url.Parse(*address)
		if err != nil {
			return bench{}, err
		}
		parsed.Path = "/" + path
		*address = parsed.String()
	}
	return other, other.connect(ctx)
}

// openStore opens the database and migrates its schema. A maxConns of 0 selects the store's
// default.
func openStore(ctx context.Context, database string, maxConns int) (*models.Store, error) {
	store, err := models.Open(postgres.Config{
		// Seeding and audits may take long.
		DSN: database, MaxConns: maxConns, StatementTimeout: time.Hour, ApplicationName: "loadgen",
	})
	if err != nil {
		return nil, err
	}
	ring, err := keyring()
	if err == nil {
		store.SetKeyring(ring)
		_, err = migrations.Up(ctx, store.DB())
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// disconnect closes the connections to the databases. The servers run on.
func (b *bench) disconnect() error {
	var errs []error
	if b.redis != nil {
		errs = append(errs, b.redis.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(errs...)
}

// close closes the connections and stops the servers.
func (b *bench) close() error {
	errs := []error{b.disconnect()}
	if b.local != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, b.local.Stop(ctx))
	}
	return errors.Join(errs...)
}

// exec runs a statement in the database of the service.
func (b *bench) exec(ctx context.Context, query string, args ...any) error {
	_, err := b.store.DB().DB.ExecContext(ctx, query, args...)
	return err
}

// checkpoint writes all changed data to disk, so that no measurement pays for the one before it.
func (b *bench) checkpoint(ctx context.Context) error { return b.execWithoutTimeout(ctx, "CHECKPOINT") }

// execWithoutTimeout runs a statement that may take longer than the statement time-out.
func (b *bench) execWithoutTimeout(ctx context.Context, query string) error {
	conn, err := b.store.DB().DB.Conn(ctx)
	if err != nil {
		return err
	}
	for _, q := range []string{"SET statement_timeout = 0", query, "RESET statement_timeout"} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	return conn.Close()
}

// deleteBatches deletes all batches with their ledger entries and sandbox debits, and all tasks.
func (b *bench) deleteBatches(ctx context.Context) error {
	if err := b.exec(ctx, "TRUNCATE batches, batch_rows, ledger_entries, outbox, sandbox_debits"); err != nil {
		return err
	}
	return b.redis.FlushDB(ctx).Err()
}

// await calls done at the interval until done returns true or an error, or until the context ends.
func await(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// every calls do at the interval, first after one interval, until do fails or the context ends. It
// returns the error of do.
func every(ctx context.Context, interval time.Duration, do func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// series is a measured quantity over several runs. A value is +Inf if a run waited in vain.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// MarshalJSON implements json.Marshaler. A value that is not a finite number becomes null.
func (s *series) MarshalJSON() ([]byte, error) {
	type plain series
	values := make([]*float64, len(s.Values))
	for i, v := range s.Values {
		if isFinite(v) {
			values[i] = &v
		}
	}
	return json.Marshal(struct {
		*plain
		Values []*float64 `json:"values"`
	}{(*plain)(s), values})
}

func (s *series) add(v float64) { s.Values = append(s.Values, v) }

func (s *series) sorted() []float64 { return slices.Sorted(slices.Values(s.Values)) }

// median returns the median of the values, the lower one of two; 0 without values.
func (s *series) median() float64 {
	if len(s.Values) == 0 {
		return 0
	}
	return s.sorted()[(len(s.Values)-1)/2]
}

// max returns the largest value; 0 without values.
func (s *series) max() float64 {
	if len(s.Values) == 0 {
		return 0
	}
	return slices.Max(s.Values)
}

// ratio is a result with a target. Most are the ratio of the medians of two series.
type ratio struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Target float64 `json:"target"` // a minimum if positive; the negated maximum if negative
	Unit   string  `json:"unit,omitempty"`

	unmeasured bool // the run was not asked to measure it: it is not reported
}

// medianRatio returns the ratio of the medians of two series. It is unmeasured if one is empty.
func medianRatio(name string, of, to *series, target float64) ratio {
	return ratio{
		Name: name, Value: of.median() / to.median(), Target: target,
		unmeasured: len(of.Values) == 0 || len(to.Values) == 0,
	}
}

// bounded returns the median of the series with a target. It is unmeasured if the series is empty.
func (s *series) bounded(target float64) ratio {
	return ratio{Name: s.Name, Value: s.median(), Target: target, Unit: s.Unit, unmeasured: len(s.Values) == 0}
}

// isFinite reports whether v is a finite number.
func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// isNumber reports whether the value is a finite number. Otherwise the divisor was 0, or a run
// waited in vain.
func (r ratio) isNumber() bool { return isFinite(r.Value) }

// MarshalJSON implements json.Marshaler. A value that is not a finite number becomes null.
func (r ratio) MarshalJSON() ([]byte, error) {
	type plain ratio
	if r.isNumber() {
		return json.Marshal(plain(r))
	}
	r.Value = 0
	return json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(r)})
}

// met reports whether the value meets the target. A value that is not a finite number never does.
func (r ratio) met() bool {
	if !r.isNumber() {
		return false
	}
	if r.Target < 0 {
		return r.Value <= -r.Target
	}
	return r.Value >= r.Target
}

// report prints the results as a table, or as JSON with --json. It adds the ratio of refused calls
// if measuring clients have made calls.
func (b *bench) report(all []*series, ratios []ratio) error {
	if refused, ok := b.calls.ratio(); ok {
		ratios = append(ratios, refused)
	}
	ratios = slices.DeleteFunc(ratios, func(r ratio) bool { return r.unmeasured })
	if b.json {
		return json.NewEncoder(b.out).Encode(map[string]any{"series": all, "ratios": ratios})
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian\tmin\tmax\truns\t")
	for _, s := range all {
		v := s.sorted()
		if len(v) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g\t%.4g\t%d\t\n", s.Name, s.median(), s.Unit, v[0], v[len(v)-1], len(v))
	}
	for _, r := range ratios {
		bound, verdict := "at least", "met"
		if r.Target < 0 {
			bound = "at most"
		}
		if !r.met() {
			verdict = "MISSED"
		}
		value := strings.TrimSpace(fmt.Sprintf("%.4g %s", r.Value, r.Unit))
		fmt.Fprintf(w, "%s\t%s\t%s %.4g\t%s\t\t\n", r.Name, value, bound, max(r.Target, -r.Target), verdict)
	}
	return w.Flush()
}
