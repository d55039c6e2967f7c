package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"partnerbilling/deploy/local"
)

// fleet is an API, two workers, a dashboard and a gateway on private servers, with a partner. The
// gateway serves the sandbox rail over HTTP.
type fleet struct {
	binary, dir string // the path of svc, and the folder of the logs

	postgres *local.Pair
	redis    *local.Servers
	env      []string // of every process, as NAME=value

	mu        sync.Mutex           // guards processes
	processes map[string]*exec.Cmd // this and the next two maps are by name
	addresses map[string]string    // HOST:PORT of the processes
	ops       map[string]string    // HOST:PORT of their health and metrics
	ports     ports

	organisation, site string                 // ids of the partner and of its Site
	basic              string                 // Authorization header with the id and secret of its client
	token              atomic.Pointer[string] // Authorization header with the client's access token
	receiver           *httptest.Server       // the partner's webhook endpoint
	answer             atomic.Int64           // HTTP status that the endpoint answers
	reference          atomic.Int64           // number of the latest batch
}

// names are the processes of the fleet, in the order of their start.
var names = []string{"rail", "api", "worker-1", "worker-2", "dashboard"}

// gatewayKey is the key that signs gateway requests, as id:secret.
const gatewayKey = "provoke:0123456789abcdef0123456789abcdef"

// start starts the servers and the processes, and adds the partner.
func (f *fleet) start(ctx context.Context) (err error) {
	if f.postgres, err = local.TempPair(ctx, local.Options{Ephemeral: true}); err != nil {
		return err
	}
	if f.redis, err = local.Temp(ctx, local.Options{WithoutPostgres: true, Ephemeral: true}); err != nil {
		return err
	}
	addresses, err := f.ports.reserve(2 * len(names))
	if err != nil {
		return err
	}
	f.processes, f.addresses, f.ops = map[string]*exec.Cmd{}, map[string]string{}, map[string]string{}
	for i, name := range names {
		f.addresses[name], f.ops[name] = addresses[2*i], addresses[2*i+1]
	}
	delete(f.ops, "rail")
	key := make([]byte, 32)
	rand.Read(key)
	f.env = local.Environ("SVC_ENV=sandbox", "SVC_DATABASE_URL="+f.postgres.DatabaseURL(),
		"SVC_DATABASE_READ_URL="+f.postgres.Standby().DatabaseURL,
		"SVC_REDIS_URL="+f.redis.RedisURL, "SVC_MASTER_KEY=k1:"+base64.StdEncoding.EncodeToString(key),
		"SVC_RAIL=http", "SVC_RAIL_ID=provoke", "SVC_RAIL_URL=http://"+f.addresses["rail"], "SVC_RAIL_KEY="+gatewayKey,
		"SVC_WEBHOOK_LOOPBACK=on", "SVC_WEBHOOK_RETRIES=1s,1s,2s,20s", "SVC_DATABASE_CONNS=6", "SVC_RATE_LIMIT=40",
		"SVC_API_CONCURRENCY=12", "SVC_OPS_PASSWORD=correct horse battery",
		"SVC_PUBLIC_BASE_URL=http://"+f.addresses["api"])
	if _, err := f.svc(ctx, "migrate", "up"); err != nil {
		return err
	}
	for _, name := range names {
		if err := f.launch(name); err != nil {
			return err
		}
		if address := f.ops[name]; address != "" {
			if err := awaitURL(ctx, "http://"+address+"/readyz"); err != nil {
				return err
			}
		}
	}
	f.answer.Store(http.StatusNoContent)
	f.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(f.answer.Load()))
	}))
	return f.addPartner(ctx)
}

// svc runs a command of svc and returns its output, without surrounding white space.
func (f *fleet) svc(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, f.binary, args...)
	cmd.Env = f.env
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("svc %v: %s", args, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// launch starts the process of a name. queues are the queues that a worker serves; none: all.
func (f *fleet) launch(name string, queues ...string) error {
	command, _, _ := strings.Cut(name, "-")
	args := []string{command}
	if len(queues) > 0 {
		args = append(args, "--queues", strings.Join(queues, ","))
	}
	cmd := exec.Command(f.binary, args...)
	cmd.Env = slices.Concat(f.env, []string{"SVC_OPS_LISTEN=" + f.ops[name]})
	if command != "worker" {
		cmd.Env = append(cmd.Env, "SVC_LISTEN="+f.addresses[name])
	}
	log, err := os.OpenFile(filepath.Join(f.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	f.mu.Lock()
	defer f.mu.Unlock()
	err = cmd.Start()
	if err == nil {
		f.processes[name] = cmd
	}
	return errors.Join(err, log.Close())
}

// kill ends processes with SIGKILL and waits for their end.
func (f *fleet) kill(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if cmd := f.processes[name]; cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		delete(f.processes, name)
	}
}

// signalRail sends a signal to the gateway.
func (f *fleet) signalRail(sig syscall.Signal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.processes["rail"].Process.Signal(sig)
}

// stop ends all processes and servers.
func (f *fleet) stop() {
	f.kill(names...)
	if f.receiver != nil {
		f.receiver.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if f.redis != nil {
		_ = f.redis.Stop(ctx)
	}
	if f.postgres != nil {
		_ = f.postgres.Stop(ctx)
	}
	f.ports.release()
}

// targets returns the addresses from which Prometheus scrapes metrics.
func (f *fleet) targets() (all []string) {
	for _, name := range names {
		if f.ops[name] != "" {
			all = append(all, f.ops[name])
		}
	}
	return all
}

// sql runs a statement on the primary.
func (f *fleet) sql(ctx context.Context, statement string) error {
	return onServer(ctx, f.postgres.Primary().DatabaseURL, statement)
}

// onServer runs a statement on the database at the URL dsn.
func onServer(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// open runs a statement in a new session of the primary. The session stays open until the returned
// function is called.
func (f *fleet) open(ctx context.Context, statement string) (end, error) {
	conn, err := pgx.Connect(ctx, f.postgres.Primary().DatabaseURL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn.Close, nil
}

// addPartner adds an organisation with a Site, a client, a linked customer and a webhook
// endpoint.
func (f *fleet) addPartner(ctx context.Context) (err error) {
	if f.organisation, err = f.svc(ctx, "admin", "organisation", "add", "Provoked"); err != nil {
		return err
	}
	if f.site, err = f.svc(ctx, "admin", "site", "add", f.organisation, "Site"); err != nil {
		return err
	}
	client, err := f.svc(ctx, "admin", "client", "add", f.organisation)
	if err != nil {
		return err
	}
	fields := strings.Fields(client)
	f.basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(fields[0]+":"+fields[1]))
	if err := f.authenticate(ctx); err != nil {
		return err
	}
	sites := "/billing/sites/" + f.site
	for _, step := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, sites + "/customers/invitations", object{"customerReference": "ada"}},
		{http.MethodPost, "/sandbox/sites/" + f.site + "/customers/ada/signup", object{}},
		{http.MethodPut, "/webhooks/endpoints/default", object{"url": f.receiver.URL + "/hook"}},
	} {
		status, answer, err := f.call(ctx, step.method, step.path, step.body)
		if err != nil || status >= http.StatusBadRequest {
			return fmt.Errorf("%s %s: %d %s, %w", step.method, step.path, status, answer, err)
		}
	}
	return nil
}

// authenticate requests an access token for the partner's client, and stores it.
func (f *fleet) authenticate(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.addresses["api"]+"/oauth2/token",
		strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", f.basic)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Token string `json:"access_token"`
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	if err == nil && answer.Token == "" {
		err = fmt.Errorf("no token: %s", response.Status)
	}
	bearer := "Bearer " + answer.Token
	f.token.Store(&bearer)
	return err
}

// bearer returns the Authorization header with the access token.
func (f *fleet) bearer() string { return *f.token.Load() }

// object is a JSON object.
type object map[string]any

// call sends a request of the partner to the API, with a JSON body. It returns the HTTP status and
// the body of the answer.
func (f *fleet) call(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+f.addresses["api"]+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", f.bearer())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// submit submits a batch of five rows that debit the customer. It does not check the answer's
// status.
func (f *fleet) submit(ctx context.Context) error {
	reference := fmt.Sprint("batch-", f.reference.Add(1))
	rows := make([]object, 5)
	for i := range rows {
		rows[i] = object{"customerReference": "ada", "rowReference": fmt.Sprint(i), "amount": 100}
	}
	_, _, err := f.call(ctx, http.MethodPost, "/billing/sites/"+f.site+"/batches",
		object{"batchReference": reference, "rows": rows})
	return err
}

// pay creates a payment intent and pays it. It returns nil if the API refuses to create one.
func (f *fleet) pay(ctx context.Context) error {
	_, answer, err := f.call(ctx, http.MethodPost, "/checkout/"+f.site+"/payment-intent", object{"amount": 100})
	if err != nil {
		return err
	}
	var created struct {
		Data struct {
			ID string `json:"paymentIntentId"`
		}
	}
	if json.Unmarshal(answer, &created) != nil || created.Data.ID == "" {
		return nil //nolint:nilerr // refused
	}
	_, _, err = f.call(ctx, http.MethodPost, "/sandbox/payment-intents/"+created.Data.ID+"/payment", object{})
	return err
}

// load keeps paying payment intents, five a second, and submitting batches, one a second, until the
// context ends. It ignores errors.
func (f *fleet) load(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		running.Go(func() { _ = f.pay(ctx) })
		if i%5 == 0 {
			running.Go(func() { _ = f.submit(ctx) })
		}
	}
}

// repeat calls do at every interval, even while earlier calls run, until ctx ends or the returned
// function is called. That function waits for the running calls.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context)) end {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				running.Go(func() { do(ctx) })
			}
		}
	})
	return func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	}
}
