package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// restoredCommand returns `svc admin restored`. Without a flag it begins a new epoch of the
// database, and so holds all work of earlier epochs. With a flag it resumes or cancels that work.
func (p *program) restoredCommand() *cobra.Command {
	var resume, cancel bool
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "Report that the database was restored, and decide about restored work",
		Long: `Run it after a restore from a backup, a dump or a storage snapshot, before any worker starts.
It holds the restored rows and payments, because acknowledged cancellations and revocations may
be lost. Ask the partners, then decide:

  --resume  look up each debit on the rail, and debit those that the rail does not know
  --cancel  cancel each debit on the rail; rows already debited succeed, the others are cancelled`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "resume the held work")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the held work on the rail")
	cmd.MarkFlagsMutuallyExclusive("resume", "cancel")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			decide := store.BeginEpoch
			switch {
			case resume:
				decide = store.ResumeRestored
			case cancel:
				decide = store.CancelRestored
			}
			epoch, err := decide(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "epoch %d, %d open batches and payment intents of earlier epochs\n",
				epoch.Number, epoch.InDoubt)
			if epoch.HeldBefore > 0 {
				fmt.Fprintln(p.stdout, "They are held. Decide with --resume or --cancel.")
			}
			return nil
		})
	}
	return acting(models.ActDecideRestored, cmd)
}
