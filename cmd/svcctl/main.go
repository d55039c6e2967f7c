// Command svcctl is the partner's command line. It calls every operation of the API, submits
// batches from CSV files, forwards, receives and certifies webhooks, and plays the sandbox. Run
// `svcctl help`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"partnerbilling/api/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := &ctl{getenv: os.Getenv, in: os.Stdin, out: os.Stdout, errOut: os.Stderr}
	code := c.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// ctl is one run of svcctl, with its environment and flags.
type ctl struct {
	getenv      func(string) string
	in          io.Reader
	out, errOut io.Writer

	profile string // the flag --profile
	site    string // the flag --site
	output  outputFormat
	started bool // the arguments and flags were accepted, and the command began
}

// run runs a command and returns its exit code. The end of ctx interrupts the command. run prints
// the error of the command, unless it was interrupted.
func (c *ctl) run(ctx context.Context, args []string) int {
	err := c.execute(ctx, args)
	if err != nil && ctx.Err() == nil {
		c.printError(err)
	}
	return c.exitCode(ctx, err)
}

// execute runs a command and returns its error.
func (c *ctl) execute(ctx context.Context, args []string) error {
	root := c.root()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// root returns the tree of commands.
func (c *ctl) root() *cobra.Command {
	root := &cobra.Command{
		Use: "svcctl", Short: "The partner's command line", Version: version(), SilenceUsage: true, SilenceErrors: true,
		Long: `The partner's command line.

It calls the service of a profile, see "svcctl login"; under "svc dev" it finds the sandbox in .svc
by itself. "svcctl help services" says where addresses and credentials come from, "svcctl help
exit-codes" what an exit code means.`,
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.errOut)
	wrapped := ".FlagUsagesWrapped " + strconv.Itoa(helpWidth)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", wrapped))
	flags := root.PersistentFlags()
	flags.StringVar(&c.profile, "profile", "", "the profile that names the service (default SVCCTL_PROFILE)")
	flags.StringVar(&c.site, "site", "", "siteId of the Site (default SITE, or the profile's first Site)")
	c.complete(root, "site", c.completeSites)
	c.complete(root, "profile", c.completeProfiles)
	root.AddGroup(
		&cobra.Group{ID: groupResources, Title: "Resources:"},
		&cobra.Group{ID: groupWork, Title: "Batches from files:"},
		&cobra.Group{ID: groupWebhooks, Title: "Webhooks:"},
		&cobra.Group{ID: groupService, Title: "Services and credentials:"},
	)
	c.addOperations(root)
	c.addGrouped(root, groupWork, c.submitCommand())
	c.addGrouped(root, groupWebhooks, c.listenCommand(), c.receiveCommand(), c.webhooksCommand(), c.triggerCommand())
	c.addGrouped(root, groupService, c.loginCommand(), c.profilesCommand(), c.apiCommand())
	root.AddCommand(servicesTopic(), exitCodesTopic())
	c.prepare(root)
	return root
}

// helpWidth is the number of columns at which the help wraps flags.
const helpWidth = 100

// The groups of commands in the help.
const (
	groupResources = "resources"
	groupWork      = "work"
	groupWebhooks  = "webhooks"
	groupService   = "service"
)

// addGrouped adds commands to a group of the help.
func (c *ctl) addGrouped(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
		root.AddCommand(cmd)
	}
}

// prepare changes a command and its subcommands. Each command sets started when it begins: earlier
// errors are errors of usage. A command that only groups others prints its help, and refuses an
// unknown subcommand.
func (c *ctl) prepare(cmd *cobra.Command) {
	if do := cmd.RunE; do != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			c.started = true
			return do(cmd, args)
		}
	} else if cmd.HasSubCommands() && cmd.HasParent() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return cmd.Help()
		}
	}
	for _, sub := range cmd.Commands() {
		c.prepare(sub)
	}
}

// siteCommand returns a command that signs in, and calls do with a client of the API and the Site
// to act on.
func (c *ctl) siteCommand(
	use, short string, args cobra.PositionalArgs,
	do func(ctx context.Context, api *client.Client, site string, args []string) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		api, site, err := c.connectSite(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), api, site, args)
	}}
}

// terminalWidth returns the width in columns of the terminal to which w writes. It returns 0 if w
// writes elsewhere.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
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
