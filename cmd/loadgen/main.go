// Command loadgen drives the service and measures it, mostly on private servers of its own. Each
// scenario is a subcommand; `loadgen help` lists them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"github.com/spf13/cobra"

	"partnerbilling/queue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

// run runs loadgen with the arguments, and writes its output to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	// Errors of Redis are expected: servers are starting, and some scenarios break it on purpose.
	queue.LogRedis(slog.New(slog.DiscardHandler))
	root := &cobra.Command{
		Use: "loadgen", Short: "Drive the service and measure it, mostly on private servers",
		SilenceUsage: true, SilenceErrors: true,
	}
	var profile string
	root.PersistentFlags().StringVar(&profile, "cpuprofile", "", "write a CPU profile of this process")
	stop := func() {}
	root.PersistentPreRunE = func(*cobra.Command, []string) (err error) {
		stop, err = startProfile(profile)
		return err
	}
	defer func() { stop() }()
	root.AddCommand(
		dayCommand(out), drainCommand(out), largeCommand(out), chaosCommand(out), submitCommand(out), fairCommand(out),
		scaleCommand(out), autoscaleCommand(out), recoverCommand(out), frozenCommand(out), backlogCommand(out),
		historyCommand(out), readerCommand(out), unsentCommand(out), webhooksCommand(out), endpointCommand(out),
		intentsCommand(out), intentsReferenceCommand(out), listCommand(out), invitationsCommand(out), tokenCommand(out),
		mixedCommand(out), overloadCommand(out), hostileCommand(out), attackCommand(out), soakCommand(out))
	root.SetArgs(args)
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}

// sandbox is the part of the file sandbox.json that loadgen needs. `svc dev` writes the file for
// its running service.
type sandbox struct {
	BaseURL       string `json:"baseUrl"`
	Organisations []struct {
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
		Sites        []struct {
			SiteID string `json:"siteId"`
		} `json:"sites"`
	} `json:"organisations"`
}

// readSandbox reads the sandbox.json at the path.
func readSandbox(path string) (sandbox, error) {
	var s sandbox
	content, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("is the service running? %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// startProfile writes a CPU profile of this process to the file until stop is called. It does
// nothing if path is empty.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
