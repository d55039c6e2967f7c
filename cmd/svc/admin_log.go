package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/csvtable"
	"partnerbilling/models"
)

// logPage is the number of entries of the audit log that one query reads.
const logPage = 1000

// logCommand returns `svc admin log`, which prints the audit log as a table, JSON or CSV.
func (p *program) logCommand() *cobra.Command {
	var flags logFlags
	cmd := command("log", "List or export the audit log, the newest entry first",
		func(ctx context.Context, _ []string) error {
			filter, err := flags.filter()
			if err != nil {
				return err
			}
			printer, err := newLogPrinter(flags.output, p.stdout)
			if err != nil {
				return err
			}
			return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
				return printLog(ctx, store, filter, flags.limit, printer)
			})
		})
	flags.add(cmd)
	return cmd
}

// logFlags are the flags of svc admin log. add describes each.
type logFlags struct {
	from, to, actor, act, organisation, subject, output string
	limit                                               int64
}

// add adds the flags to a command.
func (f *logFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "earliest time: 2026-01-31 or 2026-01-31T08:00:00Z")
	flags.StringVar(&f.to, "to", "", "time before which the entries end, in the same form")
	flags.StringVar(&f.actor, "actor", "", "only entries of this actor: an operator's name or a client's id")
	flags.StringVar(&f.act, "act", "", "only entries of this act, such as disableClient")
	flags.StringVar(&f.organisation, "organisation", "", "only entries that concern this organisation, by its id")
	flags.StringVar(&f.subject, "subject", "", "only entries about this subject: an id, a batchReference or a rail key")
	flags.Int64Var(&f.limit, "limit", 100, "maximum number of entries; 0: all")
	flags.StringVarP(&f.output, "output", "o", "table", "table, json (one object per line) or csv")
}

// filter returns the filter that the flags describe. It refuses malformed values and unknown acts.
func (f *logFlags) filter() (models.AuditFilter, error) {
	filter := models.AuditFilter{Actor: f.actor, Act: models.ActName(f.act), Subject: f.subject}
	if f.limit < 0 {
		return filter, fmt.Errorf("--limit must not be negative")
	}
	if f.act != "" && !slices.Contains(slices.Concat(models.OperatorActs, models.ClientActs), filter.Act) {
		return filter, fmt.Errorf("--act: there is no act %q; the acts are %v and %v", f.act, models.OperatorActs,
			models.ClientActs)
	}
	if f.organisation != "" {
		if err := parseID(&filter.OrganisationID, f.organisation); err != nil {
			return filter, fmt.Errorf("--organisation: %w", err)
		}
	}
	var err error
	if filter.From, err = parseTime("--from", f.from); err != nil {
		return filter, err
	}
	filter.To, err = parseTime("--to", f.to)
	return filter, err
}

// parseTime parses the value of a flag: a date, which means midnight UTC, or a time of RFC 3339. It
// returns 0 for "".
func parseTime(flag, text string) (models.Millis, error) {
	if text == "" {
		return 0, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return models.MillisOf(at), nil
		}
	}
	return 0, fmt.Errorf("%s: %q is neither a date (2026-01-31) nor a time (2026-01-31T08:00:00Z)", flag, text)
}

// printLog prints up to limit entries, newest first; a limit of 0 means all. It reads and prints
// one page at a time.
func printLog(
	ctx context.Context, store *models.Store, filter models.AuditFilter, limit int64, printer logPrinter,
) error {
	var at models.AuditPosition
	for printed := int64(0); limit == 0 || printed < limit; {
		size := int64(logPage)
		if limit > 0 {
			size = min(size, limit-printed)
		}
		page, err := store.AuditLog(ctx, filter, at, size)
		if err != nil {
			return err
		}
		if err := printer(page); err != nil {
			return err
		}
		if int64(len(page)) < size {
			return nil
		}
		last := page[len(page)-1]
		printed, at = printed+size, models.AuditPosition{At: last.At, Key: last.ID}
	}
	return nil
}

// logPrinter prints a page of entries. Its first call also prints the heading, if the format has
// one.
type logPrinter func(page []models.AuditEntry) error

// newLogPrinter returns the printer of an output format: table, json or csv.
func newLogPrinter(output string, w io.Writer) (logPrinter, error) {
	switch output {
	case "table":
		return tablePrinter(w), nil
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		return func(page []models.AuditEntry) error {
			for i := range page {
				if err := encoder.Encode(&page[i]); err != nil {
					return err
				}
			}
			return nil
		}, nil
	case "csv":
		return csvPrinter(w), nil
	}
	return nil, fmt.Errorf("--output must be table, json or csv")
}

// tablePrinter returns a printer of a table. It aligns the columns of each page separately.
func tablePrinter(w io.Writer) logPrinter {
	heading := "AT\tACTOR\tORIGIN\tACT\tSUBJECT\tOUTCOME\tDETAIL\n"
	return func(page []models.AuditEntry) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprint(table, heading)
		heading = ""
		for i := range page {
			e := &page[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", formatTime(e.At), printable(e.Actor), e.Origin, e.Act,
				printable(e.Subject), strings.TrimSpace(string(e.Outcome)+" "+e.Code), e.Detail)
		}
		return table.Flush()
	}
}

// csvPrinter returns a printer of CSV. Times are in Unix ms (at) and RFC 3339 (recordedAt).
func csvPrinter(w io.Writer) logPrinter {
	table := csv.NewWriter(w)
	record := []string{
		"id", "at", "recordedAt", "actorKind", "actor", "origin", "act", "subjectKind", "subject", "organisationId",
		"siteId", "detail", "outcome", "code", "traceId",
	}
	begun := false
	return func(page []models.AuditEntry) error {
		if !begun {
			_ = table.Write(record) // table.Error reports it
			begun = true
		}
		for i := range page {
			e := &page[i]
			_ = table.Write([]string{
				e.ID.String(), fmt.Sprint(e.At), e.RecordedAt.UTC().Format(time.RFC3339Nano), string(e.ActorKind),
				csvtable.TextCell(e.Actor), csvtable.TextCell(e.Origin), string(e.Act), string(e.SubjectKind),
				csvtable.TextCell(e.Subject), orEmpty(e.OrganisationID), orEmpty(e.SiteID), string(e.Detail),
				string(e.Outcome), e.Code, string(e.TraceID),
			})
		}
		table.Flush()
		return table.Error()
	}
}
