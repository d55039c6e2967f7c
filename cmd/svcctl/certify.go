package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// certification is a run of svcctl webhooks certify.
type certification struct {
	*ctl
	target string // URL of the receiver
	secret string // the secret that the receiver knows
	next   string // the next secret; "": the receiver does not know it
	strict bool   // advisory rules are mandatory
	http   *http.Client
}

// verdict is the result of a rule.
type verdict struct {
	Rule    string   `json:"rule"`             // the name of the rule
	Result  string   `json:"result"`           // passed, failed or advised
	Answers []string `json:"answers"`          // one for each webhook, such as "200 in 5 ms"
	Wanted  string   `json:"wanted"`           // "2xx", or "4xx except 410" for webhooks to refuse
	Advice  string   `json:"advice,omitempty"` // unless passed
}

// webhooksCommand returns `svcctl webhooks`, the commands for receivers of webhooks.
func (c *ctl) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Short: "Certify a receiver of webhooks"}
	cmd.AddCommand(c.certifyCommand())
	return cmd
}

// certifyCommand returns `svcctl webhooks certify`, which tests a partner's receiver of webhooks
// against all rules.
func (c *ctl) certifyCommand() *cobra.Command {
	run := &certification{ctl: c}
	var list strings.Builder
	for _, r := range rules {
		advisory := ""
		if r.advisory {
			advisory = " (advisory)"
		}
		fmt.Fprintf(&list, "  %-20s %s%s\n", r.name, r.text, advisory)
	}
	cmd := &cobra.Command{
		Use: "certify URL", Short: "Send good and bad webhooks to your receiver, and say which rules it keeps",
		Long: `Send good and bad webhooks to your receiver, and say which rules it keeps.

The events are signed like those of the service, but their payment intents do not exist. A receiver
acts on the good ones, so certify a receiver of a test system. The rules:

` + list.String() + `
The exit code is 8 if the receiver breaks a rule. Advisory rules count with --strict.

` + secretHelp,
		Example: "  export WEBHOOK_SECRET WEBHOOK_NEXT_SECRET\n" +
			"  svcctl webhooks certify http://127.0.0.1:3000/webhooks",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run.target = args[0]
			if err := checkTarget(run.target, "URL"); err != nil {
				return err
			}
			var err error
			if run.secret, err = c.secretOf("--secret", run.secret, secretVariable); err != nil {
				return err
			}
			if run.secret == "" {
				return errNoSecret
			}
			if run.next, err = c.secretOf("--next-secret", run.next, nextSecretVariable); err != nil {
				return err
			}
			return run.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&run.secret, "secret", "",
		"the secret that the receiver knows, whsec_… or @FILE (default WEBHOOK_SECRET)")
	cmd.Flags().StringVar(&run.next, "next-secret", "",
		"the second secret, if the receiver knows both during a rotation (default WEBHOOK_NEXT_SECRET)")
	cmd.Flags().BoolVar(&run.strict, "strict", false, "advisory rules count as well")
	c.addOutput(cmd)
	return cmd
}

// run applies every rule, prints the verdicts, and fails if a rule is broken.
func (run *certification) run(ctx context.Context) error {
	run.http = newWebhookSender()
	printer := run.newPrinter([]column{
		{"result", "RESULT"}, {"rule", "RULE"}, {"answers", "ANSWERS"}, {"wanted", "WANTED"}, {"advice", ""},
	})
	var notPassed []verdict
	for _, r := range rules {
		v, err := run.apply(ctx, r)
		if err == nil {
			err = printer.value(v)
		}
		if err != nil {
			return printer.abort(err)
		}
		if v.Result != resultPassed {
			notPassed = append(notPassed, v)
		}
	}
	if err := printer.end(); err != nil {
		return err
	}
	failed := 0
	for _, v := range notPassed {
		if v.Result == resultFailed {
			failed++
		}
		fmt.Fprintf(run.errOut, "%s: %s\n", v.Rule, v.Advice)
	}
	if failed > 0 {
		return fail(exitIncomplete, "the receiver breaks %d of %d rules", failed, len(rules))
	}
	return nil
}

// The results of a rule.
const (
	resultPassed  = "passed"
	resultFailed  = "failed"
	resultAdvised = "advised" // the receiver breaks an advisory rule, without --strict
)

// apply sends the webhooks of a rule one after another, and returns the verdict on the answers. It
// fails if no connection to the receiver can be opened.
func (run *certification) apply(ctx context.Context, r rule) (verdict, error) {
	v := verdict{Rule: r.name, Result: resultPassed, Wanted: "2xx"}
	webhooks := r.webhooks(run)
	for _, w := range webhooks {
		answer := send(ctx, run.http, run.target, w.header, w.body)
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		if answer.unreachable {
			return v, fail(exitNetwork, "no connection to %s: %w", run.target, answer.err)
		}
		v.Answers = append(v.Answers, answer.String())
		if w.mustRefuse {
			v.Wanted = "4xx except 410"
		}
		if !w.keeps(answer.status) {
			v.Result, v.Advice = resultFailed, r.advice
		}
	}
	if v.Result == resultFailed && r.advisory && !run.strict {
		v.Result = resultAdvised
	}
	return v, nil
}

// webhook is a request to the receiver.
type webhook struct {
	header     http.Header
	body       []byte
	mustRefuse bool // the receiver must refuse the request
}

// keeps reports whether the status of an answer keeps the rule: 2xx, or 4xx if the receiver must
// refuse. It rejects 410, because 410 ends the delivery of an event: a receiver with a wrong secret
// would lose events.
func (w webhook) keeps(status int) bool {
	if w.mustRefuse {
		return 400 <= status && status < 500 && status != http.StatusGone
	}
	return 200 <= status && status < 300
}
