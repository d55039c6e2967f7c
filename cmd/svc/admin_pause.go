package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// debitsCommand returns `svc admin debits`, which pauses and resumes the debits of an
// organisation's batches.
func (p *program) debitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "debits", Short: "Pause and resume the debits of an organisation's batches",
		Long: `During a pause no debit call begins for the organisation's batches. Rows in doubt are still looked
up, and every row settles by its deadline: a row that was never debited as timedOut. Payments of
its checkout go on.`,
	}
	pause := p.ofOrganisation("pause", "Pause the debits of an organisation's batches", (*models.Store).PauseDebits)
	resume := p.ofOrganisation("resume", "Resume the debits of an organisation's batches",
		func(s *models.Store, ctx context.Context, o models.OrganisationID) error {
			_, err := s.ResumeDebits(ctx, o)
			return err
		})
	cmd.AddCommand(acting(models.ActPauseDebits, pause), acting(models.ActResumeDebits, resume))
	return cmd
}

// ofOrganisation returns a command with the id of an organisation as its only argument. It passes
// the id to do, and explains the errors of do with explainAct.
func (p *program) ofOrganisation(
	use, short string, do func(*models.Store, context.Context, models.OrganisationID) error,
) *cobra.Command {
	return idCommand(p, use+" ORGANISATION", short,
		func(ctx context.Context, store *models.Store, id models.OrganisationID, _ []string) error {
			return explainAct(do(store, ctx, id))
		})
}

// explainAct replaces the texts of models.ErrReason and of the errors about pauses by messages for
// operators.
func explainAct(err error) error {
	switch {
	case errors.Is(err, models.ErrReason):
		return explain(err, "the audit log needs a --reason of 1 to 128 characters")
	case errors.Is(err, models.ErrPaused):
		return explain(err, "already paused; svc admin pauses shows by whom and why")
	case errors.Is(err, models.ErrNotPaused):
		return explain(err, "not paused")
	case errors.Is(err, models.ErrNotPausable):
		return explain(err, fmt.Sprintf("only these queues can be paused: %s; sweeps settle rows at their deadlines",
			joinQueues(models.PausableQueues)))
	}
	return err
}

// queueCommand returns `svc admin queue`, which pauses and resumes the dispatch of a queue.
func (p *program) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "queue", Short: "Pause and resume the dispatch of a queue",
		Long: `A paused queue dispatches no task. Tasks in Redis still run, among them retries of webhooks. Deadlines
stay: rows of paused debits settle without the rail, those in doubt as unconfirmed.`,
	}
	of := func(use, short string, do func(*models.Store, context.Context, models.Queue) error) *cobra.Command {
		return p.storeCommand(use+" QUEUE", short, func(ctx context.Context, store *models.Store, args []string) error {
			return explainAct(do(store, ctx, models.Queue(args[0])))
		})
	}
	cmd.AddCommand(
		acting(models.ActPauseQueue, of("pause", "Stop the dispatch of a queue", (*models.Store).PauseQueue)),
		acting(models.ActResumeQueue, of("resume", "Start the dispatch of a queue again", (*models.Store).ResumeQueue)))
	return cmd
}

// pausesCommand returns `svc admin pauses`, which lists the pauses in force: of queues, and of the
// debits of organisations.
func (p *program) pausesCommand() *cobra.Command {
	list := func(ctx context.Context, store *models.Store, _ []string) error {
		pauses, err := store.Pauses(ctx)
		if err != nil {
			return err
		}
		return p.table("SINCE\tPAUSED\tBY\tREASON", func(row func(...any)) {
			for _, pause := range pauses {
				what := "queue " + string(pause.Queue)
				if pause.Queue == "" {
					what = fmt.Sprintf("debits of %s %s", pause.OrganisationID, printable(pause.Organisation))
				}
				row(formatTime(pause.At), what, pause.By, pause.Reason)
			}
		})
	}
	return p.storeCommand("pauses", "List what is paused", list)
}

// backlogCommand returns `svc admin backlog`, which lists at most maxLanes lanes, the oldest first.
// A lane is a queue and a Site with waiting tasks. See [models.Lane] for the columns, and
// [models.WatchedSites] for the Sites that it leaves out.
func (p *program) backlogCommand() *cobra.Command {
	return p.storeCommand("backlog", "List waiting work by queue, organisation and Site",
		func(ctx context.Context, store *models.Store, _ []string) error {
			lanes, err := store.Lanes(ctx, maxLanes)
			if err != nil {
				return err
			}
			const heading = "QUEUE\tOLDEST DUE\tWAITING\tDUE\tIN FLIGHT\tDEBITS/MIN\tORGANISATION\tSITE"
			return p.table(heading, func(row func(...any)) {
				for _, l := range lanes {
					row(l.Queue, l.OldestDue.Duration(), l.Waiting, l.Due, l.InFlight, l.Recorded,
						orEmpty(l.OrganisationID), orEmpty(l.SiteID))
				}
			})
		})
}

// maxLanes is the maximum number of lanes that svc admin backlog lists.
const maxLanes = 500
