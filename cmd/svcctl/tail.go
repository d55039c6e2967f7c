package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// The default and the maximum of --limit, the number of earlier requests that tail prints.
const (
	defaultTail = 10
	maxTail     = 1000
)

// tailing is a run of svcctl logs tail.
type tailing struct {
	*ctl
	limit   int // number of earlier requests to print
	filter  client.RequestFilter
	printer *printer
	colour  bool
}

// tailCommand returns `svcctl logs tail`, which prints the organisation's requests to a sandbox as
// they are answered.
func (c *ctl) tailCommand() *cobra.Command {
	t := &tailing{ctl: c}
	cmd := &cobra.Command{
		Use: "tail", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Print the requests to a sandbox as it answers them",
		Long: `Print the organisation's latest requests to a sandbox, then each further one as it is answered: its
time, status, method, path, duration, traceId and error code. "svcctl trace TRACE-ID" shows what a
request led to.

The command connects again when the service restarts, and continues after the last request. Each
server process keeps at most 1,000 of an organisation's latest requests in memory: where several
answer, the command shows the requests of one of them. With -o json or jsonl each request is a JSON
object of its own.`,
		Example: "  svcctl logs tail --status 4xx --path /billing/",
	}
	cmd.Flags().IntVar(&t.limit, "limit", defaultTail, "number of earlier requests to print first, up to 1000")
	filter := c.addFlags(cmd, logFilter)
	c.addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if t.limit < 0 || t.limit > maxTail {
			return fail(exitUsage, "--limit must be a number from 0 to %d", maxTail)
		}
		t.filter = requestFilter(filter)
		t.printer = c.newPrinter(logColumns)
		t.colour = terminalWidth(c.out) > 0 && c.getenv("NO_COLOR") == ""
		return t.run(cmd.Context())
	}
	return cmd
}

// requestFilter returns the filter for the values of the flags in logFilter.
func requestFilter(flags []*parameterValue) client.RequestFilter {
	values := map[string]string{}
	for _, v := range flags {
		values[v.name] = v.query()
	}
	return client.RequestFilter{Status: values["status"], Method: values["method"], Path: values["path"]}
}

// run prints requests until ctx ends.
func (t *tailing) run(ctx context.Context) error {
	api, s, err := t.connect(ctx)
	if err == nil {
		err = t.follow(ctx, api, s.baseURL)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interruption is no failure
	}
	return err
}

// follow prints the latest requests, oldest first, and then each further one.
func (t *tailing) follow(ctx context.Context, api *client.Client, baseURL string) error {
	earlier := t.filter
	// The list also holds the position of the stream, so that it is needed in any case. The API
	// reads a limit of 0 as the default.
	earlier.Limit = max(t.limit, 1)
	list, err := api.Requests(ctx, earlier)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(list.Items[:min(t.limit, len(list.Items))]) {
		if err := t.print(&r); err != nil {
			return err
		}
	}
	options := client.TailOptions{
		Filter: t.filter, LastID: list.Position, Broken: t.reportBroken,
		Connected: func(string) { fmt.Fprintf(t.errOut, "following the requests at %s\n", baseURL) },
	}
	for r, err := range api.TailRequests(ctx, options) {
		if err == nil {
			err = t.print(&r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// print prints a request in the format of --output.
func (t *tailing) print(r *client.LoggedRequest) error {
	if t.output == outputTable {
		_, err := fmt.Fprintln(t.out, requestLine(r, t.colour))
		return err
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if t.output == outputJSON {
		return printIndented(t.out, encoded)
	}
	return t.printer.item(encoded)
}

// requestLine returns a request as one line: time, status, method, path, duration in ms, traceId
// and error code.
func requestLine(r *client.LoggedRequest, colour bool) string {
	status := fmt.Sprint(r.Status)
	if colour {
		status = statusColour(r.Status) + status + "\x1b[0m"
	}
	rest := fmt.Sprintf("%-6s  %s  %d ms  %s", r.Method, r.Path, r.DurationMs, r.TraceID)
	if code := strings.TrimPrefix(r.ErrorCode, errorCodePrefix); code != "" {
		rest += "  " + code
	}
	return time.UnixMilli(r.At).UTC().Format(time.RFC3339) + "  " + status + "  " + printable(rest)
}

// statusColour returns the escape sequence that sets the colour of an HTTP status.
func statusColour(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return "\x1b[31m" // red
	case status >= http.StatusBadRequest:
		return "\x1b[33m" // yellow
	}
	return "\x1b[32m" // green
}
