package main

import (
	"context"
	"time"

	"partnerbilling/models"
)

// openWork counts the unfinished work of a run: batches and rows that are not settled, debit tasks,
// running payments, and unpaid payment intents.
type openWork struct{ Batches, Rows, Tasks, Payments, Intents int }

func (o openWork) isNone() bool { return o == openWork{} }

// openRow is the SQL condition of an open row: it is not settled, or it is unconfirmed and not
// corrected.
const openRow = "(state <> 'settled' OR outcome = 'unconfirmed' AND corrected_outcome IS NULL)"

// countWork counts the open work in the database.
func countWork(ctx context.Context, store *models.Store) (open openWork, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the statement scans all rows
	defer cancel()
	err = store.DB().NewRaw(`
SELECT (SELECT count(*) FROM batches WHERE state <> 'settled') AS batches,
       (SELECT count(*) FROM batch_rows WHERE `+openRow+`) AS rows,
       (SELECT count(*) FROM outbox WHERE kind = ?) AS tasks,
       (SELECT count(*) FROM payment_intents WHERE state = 'pending') AS payments,
       (SELECT count(*) FROM payment_intents WHERE state = 'created') AS intents`,
		models.TaskDebitRows).Scan(ctx, &open)
	return open, err
}

// awaitWork waits until done accepts the open work or the time-out passes, and returns the open
// work. Meanwhile it prints the open work every progressInterval.
func awaitWork(
	ctx context.Context, store *models.Store, timeout time.Duration, done func(openWork) bool,
	printf func(format string, args ...any),
) (open openWork, err error) {
	began, printed := time.Now(), time.Now()
	err = await(ctx, 250*time.Millisecond, func() (bool, error) {
		if open, err = countWork(ctx, store); err != nil || done(open) {
			return true, err
		}
		if time.Since(printed) > progressInterval {
			printed = time.Now()
			printf("open: %+v", open)
		}
		return time.Since(began) > timeout, nil
	})
	return open, err
}

// outcomeCount is the number of rows with an outcome. Corrected is the outcome of their correction;
// empty without one.
type outcomeCount struct {
	Outcome   string `json:"outcome"`
	Corrected string `json:"corrected,omitempty"`
	Rows      int    `json:"rows"`
}

// countOutcomes counts the rows by their outcome, the most frequent outcome first.
func countOutcomes(ctx context.Context, store *models.Store) (counts []outcomeCount, err error) {
	err = store.DB().NewRaw(`
SELECT outcome::text, coalesce(corrected_outcome::text, '') AS corrected, count(*) AS rows
FROM batch_rows GROUP BY 1, 2 ORDER BY 3 DESC`).Scan(ctx, &counts)
	return counts, err
}
