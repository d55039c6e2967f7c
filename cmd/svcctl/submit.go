package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
	"partnerbilling/api/csvtable"
)

// submission is a run of svcctl submit, or of svcctl batches validate.
type submission struct {
	*ctl
	api       *client.Client
	site      string
	reference string         // REFERENCE of the command line
	batches   []client.Batch // the rows of the file
	result    string         // the name of the result file; "": none
}

// submitCommand returns `svcctl submit`, which submits a CSV file of debits and can wait for the
// outcomes.
func (c *ctl) submitCommand() *cobra.Command {
	var format rowFormat
	var check, wait bool
	var result string
	cmd := &cobra.Command{
		Use:   "submit REFERENCE FILE.csv",
		Short: "Submit a CSV file of debits as one batch or several",
		Long: `Submit a CSV file of customerReference, rowReference and amount as one batch, or as several
of 1000 rows under the references REFERENCE/1, REFERENCE/2 and so on.

The separator is a comma, a semicolon or a tab; the file is UTF-8. The first faults are listed
with their lines before anything is submitted. The command may be repeated after an interruption:
what was submitted is not submitted twice. With --wait or --result the exit code is 8 if a row has
failed.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.newSubmission(cmd.Context(), args, format)
			if err != nil {
				return err
			}
			s.result = result
			if check {
				return s.validate(cmd.Context())
			}
			return s.run(cmd.Context(), wait || result != "")
		},
	}
	addRowFormat(cmd, &format)
	cmd.Flags().BoolVar(&check, "dry-run", false, "only check the file, and print a prediction for each row")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until every row is settled")
	cmd.Flags().StringVar(&result, "result", "", "wait, and write the outcome of each row to this CSV file")
	c.addOutput(cmd)
	cmd.ValidArgsFunction = completeFile
	return cmd
}

// validateCommand returns `svcctl batches validate`, which does the same as svcctl submit
// --dry-run.
func (c *ctl) validateCommand() *cobra.Command {
	var format rowFormat
	cmd := &cobra.Command{
		Use: "validate REFERENCE FILE.csv", Short: "Check a CSV file, and print a prediction for each row",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.newSubmission(cmd.Context(), args, format)
			if err != nil {
				return err
			}
			return s.validate(cmd.Context())
		},
	}
	addRowFormat(cmd, &format)
	c.addOutput(cmd)
	cmd.ValidArgsFunction = completeFile
	return cmd
}

// addRowFormat adds the flags that set format.
func addRowFormat(cmd *cobra.Command, format *rowFormat) {
	cmd.Flags().BoolVar(&format.Decimal, "decimal", false, "amounts are in major units with decimals, such as 12.50")
	cmd.Flags().BoolVar(&format.Trim, "trim", false, "remove white space around references")
}

// completeFile completes the second argument with files.
func completeFile(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// newSubmission reads the file, divides its rows into batches, and signs in. args are REFERENCE and
// FILE.csv.
func (c *ctl) newSubmission(ctx context.Context, args []string, format rowFormat) (*submission, error) {
	rows, err := readFile(args[1], format)
	if err != nil {
		return nil, err
	}
	s := &submission{ctl: c, reference: args[0], batches: cutBatches(args[0], rows)}
	s.api, s.site, err = c.connectSite(ctx)
	return s, err
}

// readFile reads the rows of a CSV file. Its errors name the file.
func readFile(name string, format rowFormat) ([]client.Row, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	rows, err := readRows(file, format)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fail(exitRefused, "%s:\n%w", name, err)
	}
	return rows, nil
}

// cutBatches divides rows into batches of at most client.MaxBatchRows. The same file always gives
// the same batches under the same references, so that a repeated submission changes nothing.
func cutBatches(reference string, rows []client.Row) []client.Batch {
	if len(rows) <= client.MaxBatchRows {
		return []client.Batch{{BatchReference: reference, Rows: rows}}
	}
	var batches []client.Batch
	for part := range slices.Chunk(rows, client.MaxBatchRows) {
		name := reference + "/" + strconv.Itoa(len(batches)+1)
		batches = append(batches, client.Batch{BatchReference: name, Rows: part})
	}
	return batches
}

// rowCount returns the number of all rows.
func (s *submission) rowCount() int {
	n := 0
	for _, batch := range s.batches {
		n += len(batch.Rows)
	}
	return n
}

// checkForm refuses a reference that was submitted in the other form before. The forms are one
// batch under REFERENCE, and several under REFERENCE/1 and so on. A file changes its form when its
// number of rows crosses client.MaxBatchRows. The service would then accept its rows again.
func (s *submission) checkForm(ctx context.Context) error {
	other := s.reference
	if len(s.batches) == 1 {
		other += "/1"
	}
	_, err := s.api.Batch(ctx, s.site, other)
	switch {
	case client.Has(err, "batches:batch-not-found"):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", other, err)
	}
	return fail(exitRefused,
		"%s was submitted before with another number of rows; choose a new reference for the new rows", other)
}

// validate prints the service's prediction of the outcome of each row. It submits nothing.
func (s *submission) validate(ctx context.Context) error {
	printer := s.newPrinter([]column{{"rowReference", "ROW"}, {"prediction", "PREDICTION"}})
	for _, batch := range s.batches {
		predictions, err := s.api.ValidateBatch(ctx, s.site, batch)
		if err != nil {
			return printer.abort(fmt.Errorf("%s: %w", batch.BatchReference, err))
		}
		for _, p := range predictions {
			if err := printer.value(p); err != nil {
				return err
			}
		}
	}
	return printer.end()
}

// run submits the batches. If wait is set, it follows them until every row is settled.
func (s *submission) run(ctx context.Context, wait bool) error {
	if err := s.checkForm(ctx); err != nil {
		return err
	}
	printer := s.newPrinter([]column{
		{"batchReference", "BATCH"}, {"state", "STATE"}, {"rowCount", "ROWS"}, {"counts.succeeded", "SUCCEEDED"},
		{"counts.failed", "FAILED"}, {"totalAmount", "AMOUNT"}, {"succeededAmount", "COLLECTED"}, {"submittedAt", ""},
		{"settleBy", ""}, {"settledAt", ""},
	})
	if !wait {
		printer.columns = slices.DeleteFunc(printer.columns, func(col column) bool {
			return col.field == "settledAt" || col.field == "counts.succeeded" || col.field == "counts.failed" ||
				col.field == "succeededAmount"
		})
	}
	for _, batch := range s.batches {
		receipt, err := s.api.SubmitBatch(ctx, s.site, batch)
		if err != nil {
			return printer.abort(fmt.Errorf("%s: %w", batch.BatchReference, err))
		}
		if !wait {
			err = printer.value(receipt)
		}
		if err != nil {
			return err
		}
	}
	if wait {
		return s.follow(ctx, printer)
	}
	return printer.end()
}

// follow waits until every batch is settled, prints each batch, and writes the result file. It
// fails with exitIncomplete if a row did not succeed.
func (s *submission) follow(ctx context.Context, printer *printer) error {
	settled, err := s.await(ctx)
	if err != nil {
		return err
	}
	table := csvtable.AppendRecord(nil, "batchReference", "rowReference", "customerReference", "amount", "outcome")
	failed := 0
	for _, batch := range settled {
		failed += batch.Counts.Failed
		for _, row := range batch.Rows {
			table = csvtable.AppendRecord(table, csvtable.TextCell(batch.BatchReference),
				csvtable.TextCell(row.RowReference), csvtable.TextCell(row.CustomerReference),
				strconv.FormatInt(row.Amount, 10), row.Outcome)
		}
		batch.Rows = nil
		if err := printer.value(batch); err != nil {
			return err
		}
	}
	if err := printer.end(); err != nil {
		return err
	}
	if s.result != "" {
		if err := replaceFileKeepingMode(filepath.Clean(s.result), table); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fail(exitIncomplete, "%d of %d rows did not succeed", failed, s.rowCount())
	}
	return nil
}

// await waits until every batch is settled, and returns the batches. On a terminal a bar shows the
// number of settled rows.
func (s *submission) await(ctx context.Context) (settled []client.BatchStatus, err error) {
	bar := s.newProgress(ctx, s.reference, s.rowCount())
	defer bar.end()
	before := 0
	for _, batch := range s.batches {
		status, err := s.ctl.awaitBatch(ctx, s.api, s.site, batch.BatchReference, func(b client.BatchStatus) {
			bar.set(before + b.Counts.Settled)
		})
		if err != nil {
			return nil, err
		}
		before += status.RowCount
		settled = append(settled, status)
	}
	return settled, nil
}
