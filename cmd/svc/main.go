// Command svc is the whole service in one binary: the API, the workers, the operators' pages with
// the queue dashboard, the sandbox's payment gateway, migrations and the operator's tools. Run
// `svc help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes a command and returns its exit code. The end of ctx starts a graceful shutdown.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	p := &program{environ: environ, stdout: stdout, stderr: stderr}
	root := p.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "svc:", explainPooler(err))
		return 1
	}
	return 0
}

// explainPooler adds the variable to set if a pooler such as PgBouncer has refused the settings of
// a session. It returns any other error as it is.
func explainPooler(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w; set SVC_DATABASE_POOLER=transaction", err)
	}
	return err
}

// program holds what all commands share: the environment of the process, and the flags of acts.
type program struct {
	environ        []string // NAME=value
	stdout, stderr io.Writer
	operator       string // of the flag --operator
	reason         string // of the flag --reason
}

// command returns the tree of all commands.
func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use: "svc", Short: "Partner billing and checkout service",
		Long: "Partner billing and checkout service.\n\nEvery command is configured by SVC_… environment variables; " +
			"`svc config` lists them.",
		Version: version(), SilenceUsage: true, SilenceErrors: true, PersistentPreRunE: p.beginAct,
	}
	root.AddCommand(
		p.devCommand(), p.apiCommand(), p.workerCommand(), p.dashboardCommand(), p.railCommand(), p.migrateCommand(),
		p.adminCommand(), p.configCommand(), p.openapiCommand(),
	)
	return root
}

// version returns the versions of the binary and of Go. Go stamps the binary with a tag, or with a
// commit and its time. The suffix +dirty marks a modified work tree.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + " " + info.GoVersion
}

// serving returns a command that runs until its context ends. Once the context has ended, the
// command drops an error that wraps context.Canceled, such as that of an interrupted start.
func serving(use, short string, do func(ctx context.Context, args []string) error) *cobra.Command {
	return command(use, short, func(ctx context.Context, args []string) error {
		err := do(ctx, args)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// command returns a command without arguments that calls do.
func command(use, short string, do func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), args) },
	}
}
