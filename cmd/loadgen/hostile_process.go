package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// start starts this program as a process that runs the attack until it is terminated. It returns
// once the attack begins. The attack also ends with this process, which holds its standard input.
func (a *attackers) start(attack *attack) (*process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdin, config, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p, out, err := launchWith(stdin, "loadgen", own, nil, "attack", attack.name)
	if err := errors.Join(err, stdin.Close()); err != nil {
		return nil, errors.Join(err, config.Close())
	}
	go func() {
		<-p.done
		_ = config.Close()
	}()
	err = json.NewEncoder(config).Encode(a)
	if err == nil {
		_, err = out.ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not begin: %w", p.name, err), p.kill(), p.stderrTail())
	}
	return p, nil
}

func attackCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "attack NAME", Args: cobra.ExactArgs(1), Hidden: true,
		Short: "Run an attack of loadgen hostile, whose attackers the standard input has as JSON",
		RunE: func(cmd *cobra.Command, args []string) error {
			var a attackers
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&a); err != nil {
				return err
			}
			ctx, stop := context.WithCancel(cmd.Context())
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // until loadgen hostile ends
				stop()
			}()
			return a.run(ctx, out, args[0])
		},
	}
}

// run runs the attack of the name until the context ends. On the CPU that the load generator has
// for itself, the attackers get the lowest priority, so that they delay the other partner's client
// little.
func (a *attackers) run(ctx context.Context, out io.Writer, name string) error {
	for _, attack := range a.attacks() {
		if attack.name != name {
			continue
		}
		if a.Yielding {
			if err := lowerPriority(); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, "attacks")
		return attack.run(ctx)
	}
	return fmt.Errorf("no attack is called %q", name)
}
