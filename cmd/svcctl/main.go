// Command svcctl is the partner's command line. It invites customers, submits batches from CSV
// files, creates payment intents, and receives webhooks. Run `svcctl help`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "svcctl:", err)
		os.Exit(1)
	}
}

// ctl is a run of svcctl.
type ctl struct {
	getenv func(string) string
	out    io.Writer
}

// run runs a command until it returns or ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	c := &ctl{getenv: getenv, out: out}
	root := &cobra.Command{
		Use: "svcctl", Short: "The partner's command line", SilenceUsage: true, SilenceErrors: true,
		Long: "The partner's command line.\n\n" +
			"It reads BASE_URL, CLIENT_ID, CLIENT_SECRET and SITE from the environment;\n" +
			"`svc dev` writes a file that sets them: set -a; . .svc/sandbox.env; set +a",
	}
	root.AddCommand(c.inviteCommand(), c.customersCommand(), c.submitCommand(), c.batchCommand(), c.intentCommand(),
		c.traceCommand(), c.receiveCommand(), c.listenCommand())
	root.SetArgs(args)
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}

// api returns a client and the Site from the environment.
func (c *ctl) api() (*client.Client, string, error) {
	base, id, secret, site := c.getenv("BASE_URL"), c.getenv("CLIENT_ID"), c.getenv("CLIENT_SECRET"), c.getenv("SITE")
	if base == "" || id == "" || secret == "" || site == "" {
		return nil, "", errors.New("BASE_URL, CLIENT_ID, CLIENT_SECRET and SITE must be set")
	}
	return client.New(client.Config{BaseURL: base, ClientID: id, ClientSecret: secret}), site, nil
}

// print prints a response as indented JSON.
func (c *ctl) print(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintln(c.out, string(text))
	return err
}

// command returns a command that calls the API.
func (c *ctl) command(
	use, short string, args cobra.PositionalArgs,
	do func(ctx context.Context, api *client.Client, site string, args []string) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		api, site, err := c.api()
		if err != nil {
			return err
		}
		return do(cmd.Context(), api, site, args)
	}}
}
