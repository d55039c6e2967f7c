package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"partnerbilling/api/operator"
)

// operatorCommand returns `svc admin operator`. Its subcommand hash prints a line for
// SVC_OPERATORS_FILE, the file of the logins for the operators' pages at /ops.
func (p *program) operatorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "operator", Short: "Manage the operators' logins for /ops"}
	var role string
	hash := &cobra.Command{
		Use:   "hash NAME",
		Short: "Print an operator's line of SVC_OPERATORS_FILE for a password, which is asked for or read from stdin",
		Args:  cobra.ExactArgs(1),
	}
	hash.RunE = func(cmd *cobra.Command, args []string) error {
		parsed, err := operator.ParseRole(role)
		if err != nil {
			return err
		}
		password, err := p.readPassword(cmd.InOrStdin())
		if err != nil {
			return err
		}
		line, err := operator.Hash(args[0], password, parsed)
		if err == nil {
			fmt.Fprintln(p.stdout, line)
		}
		return err
	}
	hash.Flags().StringVar(&role, "role", string(operator.RoleLook),
		"look: reads everything; act: also acts, which the audit log records")
	cmd.AddCommand(hash)
	return cmd
}

// readPassword reads a line from standard input. On a terminal it prompts, and does not echo the
// line.
func (p *program) readPassword(from io.Reader) (string, error) {
	if file, ok := from.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprint(p.stderr, "Password: ")
		password, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(p.stderr)
		return string(password), err
	}
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}
