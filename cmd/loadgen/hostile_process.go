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
// once the attack begins.
func (a *attackers) start(attack *attack) (*process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	p, out, err := launch("loadgen", own, nil, "attack", attack.name, string(config))
	if err != nil {
		return nil, err
	}
	if _, err := out.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not begin: %w", p.name, err), p.kill(), p.stderrTail())
	}
	return p, nil
}

func attackCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "attack NAME ATTACKERS", Args: cobra.ExactArgs(2), Hidden: true,
		Short: "Run an attack of loadgen hostile until the process is terminated",
		RunE: func(cmd *cobra.Command, args []string) error {
			var a attackers
			if err := json.Unmarshal([]byte(args[1]), &a); err != nil {
				return err
			}
			return a.run(cmd.Context(), out, args[0])
		},
	}
}

// run runs the attack of the name until the context ends. The process gets the lowest priority: the
// attackers then delay the other partner's client, which shares a CPU with them, as little as if
// they were on other machines.
func (a *attackers) run(ctx context.Context, out io.Writer, name string) error {
	for _, attack := range a.attacks() {
		if attack.name == name {
			if err := lowerPriority(); err != nil {
				return err
			}
			fmt.Fprintln(out, "attacks")
			return attack.run(ctx)
		}
	}
	return fmt.Errorf("no attack is called %q", name)
}
