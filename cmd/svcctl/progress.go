package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"partnerbilling/api/client"
)

// progress is a bar on the terminal that shows how many rows have settled. A nil progress shows
// nothing.
type progress struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

// newProgress shows a bar of total rows on standard error. It returns nil if standard error is not
// a terminal.
func (c *ctl) newProgress(ctx context.Context, name string, total int) *progress {
	if terminalWidth(c.errOut) == 0 {
		return nil
	}
	container := mpb.NewWithContext(ctx, mpb.WithOutput(c.errOut), mpb.WithWidth(40))
	bar := container.AddBar(int64(total), mpb.PrependDecorators(decor.Name(printable(name)+" ")),
		mpb.AppendDecorators(decor.CountersNoUnit("%d of %d rows settled")))
	return &progress{container, bar}
}

// set shows the number of settled rows.
func (p *progress) set(settled int) {
	if p != nil {
		p.bar.SetCurrent(int64(settled))
	}
}

// end stops the updates of the bar, and leaves it on the terminal.
func (p *progress) end() {
	if p != nil {
		p.bar.Abort(false) // no effect on a complete bar
		p.container.Wait()
	}
}

// awaitBatch waits until a batch is settled, and returns its last known state, also with an error.
// If standard error is a terminal, it calls report with each state on the way.
func (c *ctl) awaitBatch(
	ctx context.Context, api *client.Client, site, reference string, report func(client.BatchStatus),
) (batch client.BatchStatus, err error) {
	if terminalWidth(c.errOut) == 0 {
		batch, err = api.AwaitBatch(ctx, site, reference)
	} else {
		var status client.BatchStatus
		for status, err = range api.WatchBatch(ctx, site, reference) {
			if err != nil {
				break
			}
			batch = status
			report(batch)
		}
	}
	if err != nil {
		return batch, fmt.Errorf("%s: %w", reference, err)
	}
	return batch, nil
}

// waitCommand returns `svcctl batches wait`, which waits until a batch is settled and prints it. It
// fails with exitIncomplete if a row did not succeed, or if the time is over.
func (c *ctl) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := c.siteCommand("wait BATCH", "Wait until every row of a batch is settled, and show the batch",
		cobra.ExactArgs(1), func(ctx context.Context, api *client.Client, site string, args []string) error {
			waiting, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			var bar *progress
			batch, err := c.awaitBatch(waiting, api, site, args[0], func(b client.BatchStatus) {
				if bar == nil {
					bar = c.newProgress(waiting, args[0], b.RowCount)
				}
				bar.set(b.Counts.Settled)
			})
			bar.end()
			if errors.Is(waiting.Err(), context.DeadlineExceeded) && batch.State != client.StateSettled {
				return fail(exitIncomplete, "%s is not settled after %v", args[0], timeout)
			}
			if err != nil {
				return err
			}
			encoded, err := json.Marshal(batch)
			if err == nil {
				err = c.newPrinter(nil).object(encoded)
			}
			if err == nil && batch.Counts.Failed > 0 {
				return fail(exitIncomplete, "%d of %d rows did not succeed", batch.Counts.Failed, batch.RowCount)
			}
			return err
		})
	cmd.Flags().DurationVar(&timeout, "timeout", 25*time.Hour, "maximum wait")
	c.addOutput(cmd)
	cmd.ValidArgsFunction = c.completeArgument(named("batches", "get"))
	return cmd
}
