package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/migrations"
	"partnerbilling/models"
)

// actAnnotation is the annotation of a command that the audit log records. Its value is the
// command's [models.ActName] there.
const actAnnotation = "act"

// acting marks a command as one that changes state or asks the rail, and returns it. The audit log
// records each run that opens the database, unless checkDeployment refuses the database or the
// audit log does not exist yet.
func acting(name models.ActName, cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{actAnnotation: string(name)}
	return cmd
}

// addActFlags adds the flags --operator and --reason to a command and its subcommands.
func (p *program) addActFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&p.operator, "operator", "",
		"your name in the audit log (default $SVC_OPERATOR, else the account's name)")
	cmd.PersistentFlags().StringVar(&p.reason, "reason", "",
		"why, for the audit log; pauses, resumptions and bulk redeliveries require it")
}

// beginAct runs before every command. If acting has marked the command, beginAct adds an act and a
// new trace id to its context. The operator's name comes from --operator, else from SVC_OPERATOR,
// else from the account.
func (p *program) beginAct(cmd *cobra.Command, _ []string) error {
	name, changes := cmd.Annotations[actAnnotation]
	if !changes {
		return nil
	}
	cfg, err := parseConfig(p.environ)
	if err != nil {
		return err
	}
	account := accountName()
	operator := cmp.Or(p.operator, cfg.Operator, account)
	if err := checkOperator(operator); err != nil {
		return err
	}
	if p.reason != "" {
		if err := models.CheckReason(p.reason); err != nil {
			return fmt.Errorf("--reason: %w", err)
		}
	}
	ctx := models.WithTraceID(cmd.Context(), models.NewTraceID())
	cmd.SetContext(models.WithAct(ctx, &models.Act{
		Name: models.ActName(name), Reason: p.reason,
		Actor: models.Actor{Kind: models.ActorOperator, Name: operator, Origin: account + "@" + hostName()},
	}))
	return nil
}

// perform runs do, and then records the outcome of the context's act, if there is one. It returns
// the errors of both.
func perform(ctx context.Context, cfg Config, store *models.Store, do storeFunc) error {
	err := do(ctx, cfg, store)
	recorded := store.EndAct(ctx, err)
	if migrations.IsUndefinedTable(recorded) { // before the first migration there is no audit log
		return err
	}
	return errors.Join(err, recorded)
}

// explained is an error whose text is a message for operators. [errors.Is] finds its cause.
type explained struct {
	message string
	cause   error
}

func (e *explained) Error() string { return e.message }

func (e *explained) Unwrap() error { return e.cause }

// explain returns an error with the text message. [errors.Is] finds cause in it.
func explain(cause error, message string) error { return &explained{message, cause} }

// maxOperator is the maximum length of an operator's name, in bytes.
const maxOperator = 64

// checkOperator refuses a name that is longer than maxOperator, that models.ValidateLabel refuses,
// or that has white space around it.
func checkOperator(name string) error {
	if len(name) > maxOperator || strings.TrimSpace(name) != name || models.ValidateLabel(name) != nil {
		return fmt.Errorf("the operator's name must be at most %d bytes of printable text", maxOperator)
	}
	return nil
}

// accountName returns the name of the account that runs the process. An account in a container may
// have no name: then it returns the account's number, such as "uid 1000".
func accountName() string {
	if account, err := user.Current(); err == nil && account.Username != "" {
		return account.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// hostName returns the name of the machine, or "unknown".
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}
