package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// loginCommand returns `svcctl login`, which stores the credentials for a service as a profile.
func (c *ctl) loginCommand() *cobra.Command {
	var p profile
	var name string
	var offline bool
	cmd := &cobra.Command{
		Use: "login [NAME]", Short: "Store base URL, client and secret as a profile, and use it from now on",
		Long: `Store base URL, client id, client secret and Site as a profile.

Login asks for what no flag names: on a terminal with questions, else one line each from standard
input, in the order base URL, client id, client secret, siteId. The secret has no flag, because
other users of the machine could read it there. Login signs in before it stores anything.`,
		Example: `  svcctl login
  svcctl login staging --base-url https://sandbox.example.com --client-id cli_… < secret.txt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name = cmp.Or(c.profile, defaultProfile); len(args) > 0 {
				name = args[0]
			}
			return c.login(cmd.Context(), name, p, offline)
		},
	}
	cmd.Flags().StringVar(&p.BaseURL, "base-url", "", "base URL of the service")
	cmd.Flags().StringVar(&p.ClientID, "client-id", "", "id of your API client")
	cmd.Flags().BoolVar(&offline, "offline", false, "store the profile without signing in")
	return cmd
}

// login asks for the values that p lacks, signs in unless offline is set, and stores the profile
// under a name as the profile in use.
func (c *ctl) login(ctx context.Context, name string, p profile, offline bool) error {
	q := questioner{ctl: c, lines: bufio.NewReader(c.in)}
	p.BaseURL = q.ask("Base URL", p.BaseURL)
	p.ClientID = q.ask("Client id", p.ClientID)
	p.ClientSecret = q.askSecret("Client secret")
	site := q.ask("siteId of your Site (may be empty)", c.site)
	if q.err != nil {
		return q.err
	}
	p.BaseURL = strings.TrimSuffix(p.BaseURL, "/")
	if err := checkBaseURL(p.BaseURL, "the base URL"); err != nil {
		return err
	}
	if p.ClientID == "" || p.ClientSecret == "" {
		return fail(exitUsage, "login needs a client id (--client-id) and a client secret (from standard input)")
	}
	p.Sites = strings.Fields(strings.ReplaceAll(site, ",", " "))
	if !offline {
		s := service{
			origin: "this login", baseURL: p.BaseURL, clientID: p.ClientID, clientSecret: p.ClientSecret,
		}
		if err := s.signIn(ctx, s.client()); err != nil {
			return err
		}
	}
	stored, err := c.loadProfiles()
	if err != nil {
		return err
	}
	stored.Profiles[name], stored.Active = p, name
	if err := c.saveProfiles(stored); err != nil {
		return err
	}
	fmt.Fprintf(c.errOut, "profile %q is in use: %s as %s\n", name, p.BaseURL, p.ClientID)
	return nil
}

// questioner reads answers from standard input. On a terminal it also prints the questions. After
// an error it reads no more.
type questioner struct {
	*ctl
	lines *bufio.Reader
	err   error
}

// ask returns value, the value of a flag. If value is "", it returns the next line, or "" at the
// end of the input.
func (q *questioner) ask(question, value string) string {
	if value != "" || q.err != nil {
		return value
	}
	if q.terminal() >= 0 {
		fmt.Fprint(q.errOut, question+": ")
	}
	line, err := q.lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		q.err = err
	}
	return strings.TrimSpace(line)
}

// askSecret returns the next line. A terminal does not echo it.
func (q *questioner) askSecret(question string) string {
	terminal := q.terminal()
	if terminal < 0 || q.err != nil {
		return q.ask(question, "")
	}
	fmt.Fprint(q.errOut, question+": ")
	secret, err := term.ReadPassword(terminal)
	fmt.Fprintln(q.errOut)
	q.err = err
	return strings.TrimSpace(string(secret))
}

// terminal returns the file descriptor of standard input if it is a terminal, else -1.
func (q *questioner) terminal() int {
	if file, ok := q.in.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return int(file.Fd())
	}
	return -1
}
