package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
	"partnerbilling/cmd/cmdtest"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/local/localtest"
)

// commandLine is the svcctl of a partner.
type commandLine struct {
	t      *testing.T
	binary string
	env    []string
}

// newCommandLine returns a command line. Its commands call the sandbox of a data folder, or the
// service that variables name.
func newCommandLine(t *testing.T, dataDir string, variables ...string) commandLine {
	t.Helper()
	env := local.Environ("SVC_DATA_DIR="+dataDir, "SVCCTL_CONFIG="+filepath.Join(t.TempDir(), "profiles.json"))
	return commandLine{t, cmdtest.Build(t, "svcctl"), append(env, variables...)}
}

// start starts a command. It is killed at the end of the test.
func (l commandLine) start(args ...string) *process {
	l.t.Helper()
	p := &process{
		t: l.t, name: "svcctl " + strings.Join(args, " "), cmd: exec.Command(l.binary, args...), stdout: newLines(),
		stderr: newLines(), done: make(chan struct{}),
	}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = l.env, p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		p.stdout.end()
		p.stderr.end()
		close(p.done)
	}()
	l.t.Cleanup(p.kill)
	return p
}

// run runs a command that must end with an exit code, and returns what it prints.
func (l commandLine) run(code int, args ...string) string {
	l.t.Helper()
	p := l.start(args...)
	if got := p.wait(awaitTimeout); got != code {
		l.t.Errorf("%s: exit code %d, want %d\n%s%s", p.name, got, code, p.stdout, p.stderr)
	}
	return p.stdout.String()
}

// forwarded counts the webhooks that a local receiver gets.
type forwarded struct {
	mu     sync.Mutex
	secret string
	count  map[string]int
	faults []string
}

// ServeHTTP implements http.Handler.
func (f *forwarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	event, parseErr := client.ParseEvent(r.Header, body, f.secret)
	if err != nil || parseErr != nil || event.Status == nil || r.Header.Get("Svc-Event-Type") == "" {
		f.faults = append(f.faults, fmt.Sprintf("%v, %v: %s", err, parseErr, body))
	}
	if event.Status != nil {
		f.count[event.Status.PaymentIntentID]++
	}
	w.WriteHeader(http.StatusAccepted)
}

// makeEvents creates payment intents and cancels them, whether the service answers or not. It sends
// the id of each once it is final.
func makeEvents(ctx context.Context, t *testing.T, api *client.Client, site string, count int, made chan<- string) {
	defer close(made)
	for n := range count {
		for {
			key := fmt.Sprintf("event-%d", n)
			created, err := api.CreatePaymentIntent(ctx, site, client.NewPaymentIntent{Amount: 1}, key)
			if err == nil {
				_, err = api.CancelPaymentIntent(ctx, site, created.PaymentIntentID)
			}
			if err == nil {
				made <- created.PaymentIntentID
				break
			}
			if ctx.Err() != nil {
				t.Error(err)
				return
			}
		}
	}
}

// svcctl listen forwards each of 300 events exactly once, with valid signatures, while the service
// is stopped and killed.
func TestListenForwardsOverRestarts(t *testing.T) {
	d := newDevFolder(t)
	d.env["SVC_LISTEN"] = localtest.FreeAddress(t)
	service, info := d.start()
	api, site := partner(info, 0)
	endpoint := need(api.PutWebhookEndpoint(t.Context(), client.DefaultEndpoint, "http://127.0.0.1:1/"))(t)
	target := &forwarded{secret: endpoint.Secret, count: map[string]int{}}
	receiver := httptest.NewServer(target)
	t.Cleanup(receiver.Close)
	line := newCommandLine(t, "", "BASE_URL="+info.BaseURL, "CLIENT_ID="+info.Organisations[0].ClientID.String(),
		"CLIENT_SECRET="+info.Organisations[0].ClientSecret)
	listen := line.start("listen", "--forward-to", receiver.URL, "--state", filepath.Join(t.TempDir(), "position"))
	if _, ok := listen.stderr.await(t.Context(), "listening at "+info.BaseURL); !ok {
		t.Fatalf("svcctl does not listen: %s", listen.stderr)
	}
	const events = 300
	ctx, cancel := context.WithTimeout(t.Context(), 2*awaitTimeout)
	defer cancel()
	made, ids := make(chan string), map[string]int{}
	go makeEvents(ctx, t, api, site, events, made)
	for id := range made {
		ids[id] = 1
		switch len(ids) {
		case events / 4:
			service.terminate()
			service, _ = d.start()
		case events / 2:
			service.kill()
			service, _ = d.start()
		}
	}
	if !listen.stdout.awaitCount(ctx, "202 in ", events) {
		t.Errorf("some events were not forwarded; svcctl printed:\n%s", tail(listen.stderr.String()))
	}
	if code := listen.terminate(); code != 0 { // lets a repeated event arrive
		t.Errorf("exit code %d", code)
	}
	target.mu.Lock()
	defer target.mu.Unlock()
	if diff := cmp.Diff(ids, target.count); diff != "" || len(ids) != events || len(target.faults) > 0 {
		t.Errorf("%d events, faults %v (-made +forwarded):\n%s", len(ids), target.faults, diff)
	}
	if got := strings.Count(listen.stdout.String(), "202 in "); got != events {
		t.Errorf("%d lines of 202", got)
	}
	if got := strings.Count(listen.stderr.String(), "listening at"); got < 3 {
		t.Errorf("svcctl connected %d times", got)
	}
}

// svcctl logs tail prints each request of its organisation once while the service is stopped and
// killed, also one that is answered before the command has connected again.
func TestTailFollowsOverRestarts(t *testing.T) {
	d := newDevFolder(t)
	d.env["SVC_LISTEN"] = localtest.FreeAddress(t)
	service, info := d.start()
	api, _ := partner(info, 0)
	stranger, _ := partner(info, 1)
	request := func(api *client.Client, path string) string {
		t.Helper()
		return need(api.Do(t.Context(), client.Call{Method: http.MethodGet, Path: path}))(t).TraceID
	}
	earlier := request(api, "/webhooks/endpoints")
	line := newCommandLine(t, d.dir)
	tail := line.start("logs", "tail", "--path", "/webhooks/")
	if _, ok := tail.stderr.await(t.Context(), "following the requests at "+info.BaseURL); !ok {
		t.Fatalf("svcctl does not follow: %s", tail.stderr)
	}
	hidden := []string{request(stranger, "/webhooks/endpoints"), request(api, "/sandbox/clock")}
	traces := []string{earlier}
	follow := func() {
		t.Helper()
		trace := request(api, "/webhooks/endpoints")
		traces = append(traces, trace)
		if _, ok := tail.stdout.await(t.Context(), trace); !ok {
			t.Fatalf("%s is missing; svcctl printed:\n%s%s", trace, tail.stdout, tail.stderr)
		}
	}
	follow()
	service.terminate()
	service, _ = d.start()
	follow()
	service.kill()
	d.start()
	follow()
	follow()
	if code := tail.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	printed := tail.stdout.String()
	for _, trace := range traces {
		if got := strings.Count(printed, trace); got != 1 {
			t.Errorf("%s is printed %d times", trace, got)
		}
	}
	if got := strings.Count(printed, "\n"); got != len(traces) || strings.Contains(printed, hidden[0]) ||
		strings.Contains(printed, hidden[1]) {
		t.Errorf("svcctl printed:\n%s", printed)
	}
	listed := line.run(0, "logs", "list", "--limit", "2", "-o", "csv")
	if strings.Count(listed, "\r\n") != 3 || !strings.Contains(listed, traces[len(traces)-1]) {
		t.Errorf("logs list printed:\n%s", listed)
	}
}

// excelFile writes a CSV file as Excel does, and returns its name.
func excelFile(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\ufeffCustomer Reference;Row Reference;Amount\r\n")
	for n := range rows {
		fmt.Fprintf(&b, "%s;=row %d;%d,05\r\n", customerOf(n), n, n+1)
	}
	name := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// customerOf returns the customer of a row of excelFile. Only ada and poor exist.
func customerOf(n int) string { return [...]string{"ada", "poor", "carol"}[n%3] }

// svcctl submit is killed after the service has stored the second of three batches and before the
// response. The same command then completes the file: each row once, and an exact result.
func TestSubmitKilledHalfWay(t *testing.T) {
	d := newDevFolder(t)
	_, info := d.start()
	api, site := partner(info, 0)
	for reference, behaviour := range map[string]string{"ada": "pays", "poor": "insufficientFunds"} {
		need(api.CreateInvitation(t.Context(), site, client.NewInvitation{CustomerReference: reference}, ""))(t)
		need(api.SignUp(t.Context(), site, reference, behaviour))(t)
	}
	base := need(url.Parse(info.BaseURL))(t)
	var submissions atomic.Int32
	stored, hold := make(chan struct{}), make(chan struct{})
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPost && strings.HasSuffix(r.Request.URL.Path, "/batches") &&
				submissions.Add(1) == 2 {
				close(stored)
				<-hold
			}
			return nil
		},
	}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	defer close(hold)
	const rows = 2500
	file, result := excelFile(t, rows), filepath.Join(t.TempDir(), "result.csv")
	credentials := []string{"CLIENT_ID=" + info.Organisations[0].ClientID.String(),
		"CLIENT_SECRET=" + info.Organisations[0].ClientSecret, "SITE=" + site}
	line := newCommandLine(t, "", append(credentials, "BASE_URL="+proxy.URL)...)
	args := []string{"submit", "rent", file, "--decimal", "--result", result}
	killed := line.start(args...)
	select {
	case <-stored:
	case <-killed.done:
		t.Fatalf("svcctl ended early: %s", killed.stderr)
	}
	killed.kill()
	if _, err := os.Stat(result); err == nil {
		t.Error("the killed command wrote a result")
	}

	line.env = append(line.env, "BASE_URL="+info.BaseURL)
	line.run(8, args...)
	content := need(os.ReadFile(result))(t)
	got := need(csv.NewReader(strings.NewReader(string(content))).ReadAll())(t)
	want := [][]string{{"batchReference", "rowReference", "customerReference", "amount", "outcome"}}
	for n := range rows {
		outcome := [...]string{"succeeded", "insufficientFunds", "customerNotActive"}[n%3]
		want = append(want, []string{fmt.Sprintf("rent/%d", n/1000+1), fmt.Sprintf("'=row %d", n), customerOf(n),
			fmt.Sprintf("%d05", n+1), outcome})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +written):\n%s", diff)
	}
	total := 0
	for _, batch := range collect(t, api.Batches(t.Context(), site, client.BatchFilter{})) {
		total += batch.RowCount
	}
	moved := need(api.TotalMovements(t.Context(), site, client.MovementFilter{}))(t)
	if total != rows || moved.Items != (rows+2)/3 {
		t.Errorf("%d rows were submitted, %d debited", total, moved.Items)
	}
}

// Each trigger leads to its event, and each command that reads works on what they leave.
func TestSvcctlOnTheSandbox(t *testing.T) {
	d := newDevFolder(t)
	_, info := d.start()
	api, site := partner(info, 0)
	line := newCommandLine(t, d.dir)
	if out := line.run(0, "trigger", "customerLinked"); strings.Contains(out, "event ") {
		t.Errorf("an event without an endpoint: %s", out)
	}
	line.run(0, "endpoints", "put", "default", "http://127.0.0.1:1/", "--events",
		"transactionStatus,batchSettled,customerLinked,customerRevoked,customerExpired")
	for name, want := range map[string]string{
		"payment": "transactionStatus Settled", "declined": "transactionStatus Declined",
		"insufficientFunds": "transactionStatus Declined", "cancelled": "transactionStatus Cancelled",
		"expired": "transactionStatus Expired", "batch": "batchSettled ", "customerLinked": "customerLinked ",
		"customerRevoked": "customerRevoked ", "customerExpired": "customerExpired ",
	} {
		out := line.run(0, "trigger", name, "--advance-clock")
		_, key, _ := strings.Cut(out, "event    ")
		key, _, _ = strings.Cut(key, " ")
		event := need(api.WebhookEvent(t.Context(), key))(t)
		if got := event.Type + " " + event.TransactionStatus; got != want || event.SiteID != site {
			t.Errorf("trigger %s: %s, event %s", name, out, got)
		}
	}
	intents := collect(t, api.PaymentIntents(t.Context(), site, client.PaymentIntentFilter{}))
	batches := collect(t, api.Batches(t.Context(), site, client.BatchFilter{}))
	events := collect(t, api.WebhookEvents(t.Context(), client.WebhookEventFilter{}))
	reads := [][]string{
		{"customers", "list"}, {"batches", "list"}, {"intents", "list"}, {"endpoints", "list"}, {"events", "list"},
		{"movements", "list"}, {"endpoints", "get"}, {"clock", "get"}, {"profiles", "list"},
		{"batches", "get", batches[0].BatchReference}, {"batches", "rows", batches[0].BatchReference},
		{"intents", "get", intents[0].PaymentIntentID}, {"events", "get", events[0].IdempotencyKey},
	}
	for _, args := range reads {
		for _, format := range []string{"table", "json", "jsonl", "csv"} {
			if args[0] != "profiles" && args[1] != "rows" {
				args = append(args[:len(args):len(args)], "-o", format)
			}
			if out := line.run(0, args...); len(out) < 20 {
				t.Errorf("%v prints %q", args, out)
			}
			if args[0] == "profiles" || args[1] == "rows" {
				break
			}
			args = args[:len(args)-2]
		}
	}
	line.run(8, "batches", "wait", batches[0].BatchReference)
	line.run(8, "endpoints", "test")
	line.run(4, "intents", "get", "pi_01a21f3c-0d4f-74df-bb40-7ebbe5759b72")
	line.run(8, "intents", "create", "5", "--wait", "1s")
}
