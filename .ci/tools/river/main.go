// Command river measures how fast River, a job queue for Go, works jobs on a PostgreSQL server.
// Each job updates one row. The time runs from the client's start until the last job has run;
// inserts do not count. `loadgen large` compares the rate of this service with the rate of River.
//
//	river postgres://…/postgres 20000
//
// The arguments are the URL of a database on the server and the number of jobs. The command creates
// a database of its own, drops it at the end, and prints the rate in jobs per second.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	rate, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
	fmt.Printf("%.0f\n", rate)
}

// run creates the database, measures the rate in it, and drops it. The rate is in jobs per second.
func run(ctx context.Context, args []string) (rate float64, err error) {
	if len(args) != 2 {
		return 0, errors.New("want the URL of a database and a number of jobs")
	}
	jobs, err := strconv.Atoi(args[1])
	if err != nil || jobs < 1 {
		return 0, fmt.Errorf("the number of jobs is %q, not a whole number from 1", args[1])
	}
	admin, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, admin.Close(context.WithoutCancel(ctx))) }()
	const name = "river_reference"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	defer func() {
		_, dropErr := admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name)
		err = errors.Join(err, dropErr)
	}()
	cfg, err := pgxpool.ParseConfig(args[0])
	if err != nil {
		return 0, err
	}
	cfg.ConnConfig.Database, cfg.MaxConns = name, connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	return measure(ctx, pool, jobs)
}

const (
	// connections is the size of the pool.
	connections = 32
	// workers, fetchCooldown and fetchPoll are those of River's own benchmark.
	workers       = 2000
	fetchCooldown = 2 * time.Millisecond
	fetchPoll     = 20 * time.Millisecond
)

// updateArgs are the arguments of a job: the row to update.
type updateArgs struct {
	ID int `json:"id"`
}

// Kind implements river.JobArgs.
func (updateArgs) Kind() string { return "update" }

// updateWorker updates the row of a job.
type updateWorker struct {
	river.WorkerDefaults[updateArgs]

	pool *pgxpool.Pool
	left atomic.Int64 // jobs that have not run
	done chan struct{}
}

// Work implements river.Worker. It closes done after the last job.
func (w *updateWorker) Work(ctx context.Context, job *river.Job[updateArgs]) error {
	if _, err := w.pool.Exec(ctx, "UPDATE reference_rows SET settled_at = 1 WHERE id = $1", job.Args.ID); err != nil {
		return err
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

// measure inserts the jobs, and returns the rate at which a client works them, in jobs per second.
func measure(ctx context.Context, pool *pgxpool.Pool, jobs int) (float64, error) {
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	for _, statement := range []string{
		"CREATE TABLE reference_rows (id int PRIMARY KEY, settled_at bigint)",
		fmt.Sprintf("INSERT INTO reference_rows SELECT generate_series(0, %d)", jobs-1),
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	worker := &updateWorker{pool: pool, done: make(chan struct{})}
	worker.left.Store(int64(jobs))
	registered := river.NewWorkers()
	river.AddWorker(registered, worker)
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPoll,
		Workers:           registered,
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	const step = 1000
	for first := 0; first < jobs; first += step {
		params := make([]river.InsertManyParams, 0, step)
		for i := first; i < min(first+step, jobs); i++ {
			params = append(params, river.InsertManyParams{Args: updateArgs{i}})
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return 0, err
		}
	}
	for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-worker.done:
	case <-ctx.Done():
	}
	took := time.Since(began)
	return float64(jobs) / took.Seconds(), errors.Join(ctx.Err(), client.Stop(context.WithoutCancel(ctx)))
}
