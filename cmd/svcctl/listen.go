package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// listening is a run of svcctl listen.
type listening struct {
	*ctl
	secrets []string // the values of --secret; RunE replaces them by the secrets themselves
	events  []string // the types to deliver; empty for all
	target  string   // the URL to forward to; "": print
	state   string   // the file that holds the position; "": none
	http    *http.Client

	position position // of the service and client in use; Position is empty
}

// position is the content of the file of --state: how far a stream of events has been handled. A
// position belongs to the stream of one client at one service.
type position struct {
	BaseURL  string `json:"baseUrl"`
	ClientID string `json:"clientId"`
	Position string `json:"position"` // the id of the last event, or a position from the service
}

// listenCommand returns `svcctl listen`, which prints the organisation's webhooks, or forwards them
// to a receiver under development.
func (c *ctl) listenCommand() *cobra.Command {
	l := &listening{ctl: c}
	cmd := &cobra.Command{
		Use: "listen", Args: cobra.NoArgs,
		Short: "Print webhooks as they occur, or forward them to a URL on this machine",
		Long: `Print the organisation's webhooks as they occur, or forward them to a URL on this machine. No
endpoint is needed.

With --forward-to each event is sent as the service would send it: the same bytes, with the same
signatures. The command connects again when the service restarts. It repeats no event, and leaves
out none of the last 24 hours. While no connection to the URL can be opened, it waits. An answer of
any status counts as forwarded. With --state a later run continues where this one ended, within 24
hours, if it listens to the same service as the same client.

With a webhook secret it verifies each event, and prints a line about it instead of its body.
` + secretHelp,
		Example: "  svcctl listen --forward-to http://127.0.0.1:3000/webhooks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if l.secrets, err = c.webhookSecrets(l.secrets); err != nil {
				return err
			}
			if l.target != "" {
				if err := checkTarget(l.target, "--forward-to"); err != nil {
					return err
				}
			}
			return l.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&l.target, "forward-to", "", "forward each webhook to this URL")
	cmd.Flags().StringArrayVar(&l.secrets, "secret", nil,
		"verify signatures with this webhook secret, whsec_… or @FILE (default WEBHOOK_SECRET and "+
			"WEBHOOK_NEXT_SECRET); may be repeated")
	cmd.Flags().StringSliceVar(&l.events, "events", nil, "only these types of events, separated by commas")
	cmd.Flags().StringVar(&l.state, "state", "", "a file that keeps the position for a later run")
	c.complete(cmd, "events", cobra.FixedCompletions(eventTypes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// run forwards or prints events until ctx ends. It keeps the position after each event that it has
// printed or sent.
func (l *listening) run(ctx context.Context) error {
	l.http = newWebhookSender()
	stored, err := l.stored()
	if err != nil {
		return err
	}
	api, s, err := l.connect(ctx)
	if err != nil {
		return err
	}
	l.position = position{BaseURL: s.baseURL, ClientID: s.clientID}
	last := stored.Position
	if last != "" && (stored.BaseURL != s.baseURL || stored.ClientID != s.clientID) {
		fmt.Fprintf(l.errOut, "%s holds the position of client %s at %s: beginning now\n", l.state,
			printable(stored.ClientID), printable(stored.BaseURL))
		last = ""
	}
	where := s.baseURL
	if l.target != "" {
		where += ", forwarding to " + l.target
	}
	options := client.ListenOptions{
		LastID: last,
		Connected: func(position string) {
			fmt.Fprintf(l.errOut, "listening at %s\n", where)
			l.warn(l.keep(position))
		},
		Broken: l.reportBroken,
	}
	for delivery, err := range api.ListenWith(ctx, options) {
		if err == nil {
			err = l.deliver(ctx, delivery)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil // an interruption is no failure
			}
			return err
		}
		if err := l.keep(delivery.ID); err != nil {
			return err
		}
	}
	return nil
}

// reportBroken prints why a stream has ended, and that the client connects again. nil means that
// the service ended the stream.
func (c *ctl) reportBroken(err error) {
	if err == nil {
		err = errors.New("the service ended the stream")
	}
	fmt.Fprintf(c.errOut, "%s; connecting again\n", printable(err.Error()))
}

// stored returns the position that an earlier run kept, or the zero position. It refuses a file
// with other content, because keep would overwrite it.
func (l *listening) stored() (stored position, err error) {
	if l.state == "" {
		return position{}, nil
	}
	content, err := os.ReadFile(l.state)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(content) == 0 {
		return position{}, nil
	}
	if err != nil {
		return position{}, err
	}
	if err := json.Unmarshal(content, &stored); err != nil || stored.Position == "" {
		return position{}, fail(exitUsage, "%s does not hold a position of listen: name another file, or remove it",
			l.state)
	}
	return stored, nil
}

// keep writes the position to the state file for a later run.
func (l *listening) keep(id string) error {
	if l.state == "" || id == "" {
		return nil
	}
	kept := l.position
	kept.Position = id
	content, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return replaceFile(l.state, append(content, '\n'))
}

// warn prints an error, unless it is nil.
func (l *listening) warn(err error) {
	if err != nil {
		fmt.Fprintln(l.errOut, "svcctl:", err)
	}
}

// deliver forwards or prints an event. It does nothing with an event of a type that is not
// selected. With secrets it first verifies the event and prints the result. It forwards the event
// even if the verification fails.
func (l *listening) deliver(ctx context.Context, delivery client.Delivery) error {
	header := http.Header{}
	for name, value := range delivery.Headers {
		header.Set(name, value)
	}
	if len(l.events) > 0 && !slices.Contains(l.events, header.Get("Svc-Event-Type")) {
		return nil
	}
	if len(l.secrets) > 0 {
		event, err := client.ParseEvent(header, []byte(delivery.Body), l.secrets...)
		if err != nil {
			fmt.Fprintln(l.out, "REFUSED:", err)
		} else {
			fmt.Fprintln(l.out, "verified: "+printable(describe(event)))
		}
	}
	if l.target == "" {
		if len(l.secrets) == 0 {
			fmt.Fprintln(l.out, delivery.Body)
		}
		return nil
	}
	return l.forward(ctx, header, []byte(delivery.Body))
}

// maxForwardBackoff is the maximum wait between two attempts to reach the target.
const maxForwardBackoff = 5 * time.Second

// forward sends an event to the target, and prints the answer. It waits while no connection can be
// opened. A request that was sent is not repeated: the target may have acted on it. forward returns
// an error only if ctx ends before the request was sent.
func (l *listening) forward(ctx context.Context, header http.Header, body []byte) error {
	for attempt := 0; ; attempt++ {
		sent := send(ctx, l.http, l.target, header, body)
		if !sent.unreachable {
			fmt.Fprintf(l.out, "%s  %s  %s  %s\n", time.Now().UTC().Format(time.RFC3339),
				printable(header.Get("Svc-Event-Type")), printable(header.Get("Webhook-Id")), sent)
			return nil
		}
		if attempt == 0 && ctx.Err() == nil {
			fmt.Fprintf(l.errOut, "%s; trying again\n", sent)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(250*time.Millisecond<<min(attempt, 5), maxForwardBackoff)):
		}
	}
}

// checkTarget refuses a malformed URL. source is the flag or argument that holds it, for the error.
func checkTarget(text, source string) error {
	req, err := http.NewRequest(http.MethodPost, text, http.NoBody) //nolint:noctx // it is not sent
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fail(exitUsage, "%s must be a URL such as http://127.0.0.1:3000/webhooks, not %q", source, text)
	}
	return nil
}

// The service's limits for the answer to a webhook.
const (
	webhookTimeout = 10 * time.Second
	maxWebhookBody = 64 << 10 // bytes that are read
)

// newWebhookSender returns an HTTP client that sends webhooks as the service does: without a proxy,
// and without following redirects.
func newWebhookSender() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: nil, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sendResult is the answer to a webhook.
type sendResult struct {
	status      int // 0 without an answer
	took        time.Duration
	unreachable bool // nothing was sent
	err         error
}

// String returns the result in one line, such as "200 in 5 ms", or the error.
func (r sendResult) String() string {
	if r.err != nil {
		return printable(r.err.Error())
	}
	return fmt.Sprintf("%d in %d ms", r.status, r.took.Milliseconds())
}

// send sends a webhook once, and waits for the whole answer.
func send(ctx context.Context, sender *http.Client, target string, header http.Header, body []byte) sendResult {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return sendResult{err: err}
	}
	req.GetBody = nil // a request that was sent is not repeated
	req.Header = header.Clone()
	connected := false
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}))
	began := time.Now()
	resp, err := sender.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxWebhookBody))
		err = errors.Join(err, resp.Body.Close())
	}
	result := sendResult{took: time.Since(began), unreachable: err != nil && !connected}
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.err = fmt.Errorf("no answer within %v", webhookTimeout)
	case err != nil:
		result.err = innermost(err)
	default:
		result.status = resp.StatusCode
	}
	return result
}
