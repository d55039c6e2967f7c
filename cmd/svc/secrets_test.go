package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// plantedRun is a run of real processes whose every secret and personal text is known.
type plantedRun struct {
	*fleet
	base      string
	processes []*process
	secrets   map[string]string // that appear nowhere
	personal  map[string]string // that only the database holds
}

// plant returns a text that occurs nowhere else, and notes it.
func (p *plantedRun) plant(in map[string]string, name string) string {
	in[name] = "planted-" + strings.ReplaceAll(name, " ", "-") + "-7391"
	return in[name]
}

// forms returns the encodings in which a text would be written.
func forms(text string) []string {
	raw := []byte(text)
	all := []string{text, url.QueryEscape(text), hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw),
		base64.RawURLEncoding.EncodeToString(raw)}
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_")); err == nil {
		all = append(all, hex.EncodeToString(decoded), base64.StdEncoding.EncodeToString(decoded))
	}
	return slices.Compact(all)
}

// shown returns the names of the planted texts that are written somewhere, in any form.
func shown(written string, planted map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(planted)) {
		contained := func(form string) bool { return strings.Contains(written, form) }
		if slices.ContainsFunc(forms(planted[name]), contained) {
			names = append(names, name)
		}
	}
	return names
}

// call makes a request with an access token, and returns the data of its answer.
func (p *plantedRun) call(method, path, token string, body any, want int, headers ...string) map[string]any {
	p.Helper()
	var encoded []byte
	if body != nil {
		var err error
		encoded, err = json.Marshal(body)
		must(p.T, err)
	}
	request, err := http.NewRequestWithContext(p.Context(), method, p.base+path, bytes.NewReader(encoded))
	must(p.T, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Svc-Api-Version", client.Version)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	must(p.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(p.T, err)
	if answer.StatusCode != want {
		p.Fatalf("%s %s: %d: %s", method, path, answer.StatusCode, text)
	}
	var envelope struct{ Data map[string]any }
	_ = json.Unmarshal(text, &envelope) // a page or an error has no data
	return envelope.Data
}

// token obtains an access token, and notes the client's secret and the token.
func (p *plantedRun) token(name string, organisation models.OrganisationID, scopes []models.Scope) string {
	p.Helper()
	c, secret, err := p.store.CreateClientWithSecret(p.Context(), organisation, name, scopes)
	must(p.T, err)
	p.secrets[name+"'s client secret"] = secret
	grant := func(secret string) (status int, token string) {
		form := strings.NewReader("grant_type=client_credentials")
		request, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.base+"/oauth2/token", form)
		must(p.T, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.SetBasicAuth(c.ID.String(), secret)
		answer, err := http.DefaultClient.Do(request)
		must(p.T, err)
		defer answer.Body.Close()
		var granted struct {
			Token string `json:"access_token"`
		}
		must(p.T, json.NewDecoder(answer.Body).Decode(&granted))
		return answer.StatusCode, granted.Token
	}
	if status, _ := grant(p.plant(p.secrets, name+" guessed secret")); status != http.StatusUnauthorized {
		p.Errorf("a wrong secret: %d", status)
	}
	_, token := grant(secret)
	p.secrets[name+"'s access token"] = token
	_, signature, _ := strings.Cut(token, ".")
	p.secrets[name+"'s access token without its header"] = signature
	return token
}

// start starts an API, a worker and a dashboard that log all they can.
func (p *plantedRun) start() {
	p.Helper()
	servers := map[string]string{"database": p.env["SVC_DATABASE_URL"], "Redis": p.env["SVC_REDIS_URL"]}
	for name, server := range servers {
		parsed, err := url.Parse(server)
		must(p.T, err)
		password, _ := parsed.User.Password()
		if len(password) < 16 {
			p.Fatalf("the %s has no password of its own", name)
		}
		p.secrets[name+" password"] = password
	}
	p.env = with(p.env, "SVC_LOG_LEVEL", "DEBUG", "SVC_OPS_LISTEN", "127.0.0.1:0")
	operator := filepath.Join(p.TempDir(), "operators")
	must(p.T, os.WriteFile(operator, []byte(hashPassword(p.T, "jane", p.plant(p.secrets, "named operators password"))),
		0o600))
	api := startSvc(p.T, with(p.env, "SVC_LISTEN", "127.0.0.1:0", "SVC_PUBLIC_BASE_URL", "http://billing.example"),
		"api")
	p.base = "http://" + after(api.expect("listens on"))
	dashboard := startSvc(p.T, with(p.env, "SVC_LISTEN", "127.0.0.1:0", "SVC_OPERATORS_FILE", operator,
		"SVC_OPS_USERNAME", "john", "SVC_OPS_PASSWORD", p.plant(p.secrets, "operators password")), "dashboard")
	p.processes = []*process{api, startSvc(p.T, p.env, "worker"), dashboard}
	page := after(dashboard.expect("the dashboard is at"))
	for _, password := range []string{p.plant(p.secrets, "guessed operators password"),
		p.secrets["operators password"]} {
		get(p.T, page, "john", password)
	}
	get(p.T, page, "jane", p.secrets["named operators password"])
}

// metrics returns the metrics of all processes.
func (p *plantedRun) metrics() string {
	p.Helper()
	var all strings.Builder
	for _, process := range p.processes {
		_, text := get(p.T, after(process.expect("health and metrics are at"))+"/metrics", "", "")
		all.WriteString(text)
	}
	return all.String()
}

// live signs a customer up, debits the customer in a batch and in a payment, and has webhooks
// delivered: first refused, then accepted.
func (p *plantedRun) live() {
	p.Helper()
	received := make(chan struct{}, 100)
	refused := false
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !refused {
			refused = true
			w.WriteHeader(http.StatusInternalServerError)
		}
		received <- struct{}{}
	}))
	p.Cleanup(receiver.Close)
	partner := p.token("partner", p.site.OrganisationID, models.PartnerScopes)
	app := p.token("app", models.OrganisationID{}, models.CustomerAppScopes)
	put := p.call("PUT", "/webhooks/endpoints/default", partner,
		map[string]any{"url": receiver.URL + "/?key=" + p.plant(p.personal, "key of the callback")}, 201)
	p.secrets["webhook secret"], _ = put["secret"].(string)
	rotated := p.call("POST", "/webhooks/secret/rotation", partner, nil, 200)
	p.secrets["next webhook secret"], _ = rotated["secret"].(string)
	billing, checkout := "/billing/sites/"+p.site.ID.String(), "/checkout/"+p.site.ID.String()

	reference := p.plant(p.personal, "customerReference")
	invited := p.call("POST", billing+"/customers/invitations", partner, map[string]any{"customerReference": reference},
		201, "Idempotency-Key", p.plant(p.personal, "Idempotency-Key"))
	signup, _ := invited["signupUrl"].(string)
	p.secrets["sign-up token"] = signup[strings.LastIndexByte(signup, '/')+1:]
	party := map[string]any{"customerId": p.plant(p.secrets, "customerId"),
		"agreementId": p.plant(p.secrets, "agreementId")}
	must(p.T, p.store.OpenSandboxAccount(p.Context(), p.secrets["agreementId"], models.BehaviourPays))
	path := "/customer-app/signups/" + p.secrets["sign-up token"]
	p.call("GET", "/signup/"+p.secrets["sign-up token"], "", nil, 200)
	p.call("GET", path, app, nil, 200)
	p.call("POST", path+"/completion", app, party, 200)
	p.call("GET", billing+"/customers/"+reference, partner, nil, 200)
	p.call("GET", billing+"/customers?state="+p.plant(p.personal, "parameter"), partner, nil, 400)
	p.call("GET", billing+"/batches?access_token="+p.secrets["partner's access token"], partner, nil, 400)
	p.call("GET", "/webhooks/events", p.plant(p.secrets, "forged token"), nil, 401)

	batch := p.plant(p.personal, "batchReference")
	p.call("POST", billing+"/batches", partner, map[string]any{"batchReference": batch, "rows": []map[string]any{
		{"customerReference": reference, "rowReference": p.plant(p.personal, "rowReference"), "amount": 100}}}, 202)
	p.call("POST", billing+"/batches", partner, map[string]any{"batchReference": batch, "rows": []map[string]any{
		{"customerReference": "x", "rowReference": "y", "amount": -1}}}, 400)
	p.await(func() bool {
		return p.call("GET", billing+"/batches/"+batch, partner, nil, 200, "Prefer", "wait=10")["state"] == "settled"
	})
	intent := p.call("POST", checkout+"/payment-intent", partner, map[string]any{"amount": 5, "qrCodeFormat": "text",
		"orderId": p.plant(p.personal, "orderId"), "lineItems": []map[string]any{{"itemId": p.plant(p.personal, "itemId"),
			"quantity": 1, "amountPerUnit": 5, "amountSubtotal": 5}}}, 201)
	code, _ := intent["qrCode"].(string)
	code = code[strings.LastIndexByte(code, '/')+1:]
	p.call("POST", "/customer-app/payment-intents/"+code+"/transactions", app, party, 202)
	p.await(func() bool {
		id, _ := intent["paymentIntentId"].(string)
		return p.call("GET", checkout+"/payment-intent/"+id, partner, nil, 200, "Prefer", "wait=10")["state"] == "final"
	})
	awaitWebhook := func() {
		select {
		case <-received:
		case <-time.After(awaitTimeout):
			p.Fatal("no webhook arrived")
		}
	}
	awaitWebhook()
	events, _ := p.call("GET", "/webhooks/events", partner, nil, 200)["items"].([]any)
	if len(events) != 1 {
		p.Fatalf("events %v", events)
	}
	event, _ := events[0].(map[string]any)
	p.call("POST", fmt.Sprint("/webhooks/events/", event["idempotencyKey"], "/redelivery"), partner, nil, 202)
	awaitWebhook()
}

// await makes a call that waits at the service until it returns true.
func (p *plantedRun) await(done func() bool) {
	p.Helper()
	for began := time.Now(); !done(); {
		if time.Since(began) > awaitTimeout {
			p.Fatal("the run does not go on")
		}
	}
}

// inRedis returns the content of every key.
func (p *plantedRun) inRedis() string {
	p.Helper()
	c, ctx := queuetest.Client(p.T, p.redis.URL), p.Context()
	keys, err := c.Keys(ctx, "*").Result()
	must(p.T, err)
	var all strings.Builder
	for _, key := range keys {
		kind, err := c.Type(ctx, key).Result()
		must(p.T, err)
		read := map[string][]any{"string": {"GET", key}, "hash": {"HGETALL", key}, "set": {"SMEMBERS", key},
			"list": {"LRANGE", key, 0, -1}, "zset": {"ZRANGE", key, 0, -1}, "stream": {"XRANGE", key, "-", "+"}}[kind]
		if read == nil {
			continue // the key has expired
		}
		value, _ := c.Do(ctx, read...).Result() // it may have expired as well
		fmt.Fprintln(&all, key, value)
	}
	return all.String()
}

// monitor records every command that Redis executes until it is stopped.
func (p *plantedRun) monitor() (recorded func() string) {
	p.Helper()
	server, err := url.Parse(p.env["SVC_REDIS_URL"])
	must(p.T, err)
	c, err := (&net.Dialer{}).DialContext(p.Context(), "tcp", server.Host)
	must(p.T, err)
	password, _ := server.User.Password()
	_, err = fmt.Fprintf(c, "AUTH %s\r\nMONITOR\r\n", strings.TrimSpace(server.User.Username()+" "+password))
	must(p.T, err)
	all, done := newLines(), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(all, c) // until the connection is closed
	}()
	if _, ok := all.await(p.Context(), "OK"); !ok {
		p.Fatal("Redis does not answer")
	}
	return func() string {
		must(p.T, c.Close())
		<-done
		return all.String()
	}
}

// dump returns the database as pg_dump writes it. It leaves out the accounts of the sandbox's bank,
// which plays the rail.
func (p *plantedRun) dump() string {
	p.Helper()
	programs, err := local.PostgresPrograms(p.Context())
	must(p.T, err)
	dump, err := exec.CommandContext(p.Context(), filepath.Join(programs, "pg_dump"), "--exclude-table-data=sandbox_*",
		p.env["SVC_DATABASE_URL"]).Output()
	must(p.T, err)
	return string(dump)
}

// commandLines returns the arguments of the processes as the system lists them.
func (p *plantedRun) commandLines() string {
	p.Helper()
	var all strings.Builder
	for _, process := range p.processes {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.cmd.Process.Pid), "cmdline"))
		if err != nil && runtime.GOOS == "linux" {
			p.Fatal(err)
		}
		all.WriteString(strings.Join(append(process.cmd.Args, string(text)), " ") + "\n")
	}
	return all.String()
}

// No secret is written anywhere, and no personal text anywhere but in the database. The run has a
// sign-up, a batch, a payment, webhooks and refused requests, with every log on.
func TestNothingShowsSecrets(t *testing.T) {
	t.Parallel()
	p := &plantedRun{fleet: newFleet(t, modelstest.DSN(t)), secrets: map[string]string{}, personal: map[string]string{}}
	p.secrets["master key"] = p.env["SVC_MASTER_KEY"]
	_, p.secrets["master key without its id"], _ = strings.Cut(p.env["SVC_MASTER_KEY"], ":")
	if p.secrets["master key without its id"] == "" {
		delete(p.secrets, "master key without its id")
	}
	recorded := p.monitor()
	p.start()
	p.live()
	metrics, commandLines, redis, dump := p.metrics(), p.commandLines(), p.inRedis(), p.dump()
	var logs strings.Builder
	for _, process := range p.processes {
		if code := process.terminate(); code != 0 {
			t.Errorf("%s ended with %d", process.name, code)
		}
		logs.WriteString(process.stdout.String() + process.stderr.String())
	}
	both := maps.Clone(p.secrets)
	maps.Copy(both, p.personal)
	sent := maps.Clone(both)
	delete(sent, "Redis password") // which clients must send
	for _, output := range []struct {
		name, written, contains string // contains proves that the output was read
		planted                 map[string]string
	}{
		{"the log", logs.String(), `"route":"/billing/sites/{siteId}/batches/{batchReference}"`, both},
		{"the metrics", metrics, "svc_http_requests_total", both},
		{"the commands of Redis", recorded(), "asynq:", sent},
		{"the keys of Redis", redis, "asynq:", both},
		{"the list of processes", commandLines, "worker", both},
		{"the dump of the database", dump, p.personal["customerReference"], p.secrets},
	} {
		if !strings.Contains(output.written, output.contains) {
			t.Errorf("%s: %d bytes without %s", output.name, len(output.written), output.contains)
		}
		for _, name := range shown(output.written, output.planted) {
			t.Errorf("%s: shows the %s", output.name, name)
		}
		t.Logf("%s: %d bytes, %d texts searched", output.name, len(output.written), len(output.planted))
	}
}

// The search finds a text in every form in which it could be written.
func TestShownFindsEveryForm(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"a": "secret/of+a", "b": "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789")),
	}
	if got := shown("nothing of the kind", planted); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	for _, written := range []string{"secret/of+a", "secret%2Fof%2Ba", `\x` + hex.EncodeToString([]byte("secret/of+a")),
		base64.StdEncoding.EncodeToString([]byte("secret/of+a"))} {
		if got := shown("key="+written+";", planted); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%s: found %v", written, got)
		}
	}
	if got := shown(hex.EncodeToString([]byte("0123456789")), planted); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the decoded secret: found %v", got)
	}
}
