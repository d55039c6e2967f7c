package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/deploy/local/localtest"
)

// result is what a run of svcctl has printed, and its exit code.
type result struct {
	code        int
	out, errOut string
}

// runWith runs a command with an environment and standard input.
func runWith(ctx context.Context, environment map[string]string, input string, args ...string) result {
	var out, errOut bytes.Buffer
	c := &ctl{
		getenv: func(name string) string { return environment[name] }, in: strings.NewReader(input), out: &out,
		errOut: &errOut,
	}
	code := c.run(ctx, args)
	return result{code, out.String(), errOut.String()}
}

// svcctl runs a command as a partner of the API at url.
func svcctl(ctx context.Context, url string, args ...string) result {
	return runWith(ctx, map[string]string{
		"BASE_URL": url, "CLIENT_ID": "id", "CLIENT_SECRET": "secret", "SITE": "site", "SVCCTL_CONFIG": os.DevNull + "/none",
	}, "", args...)
}

// newAPI returns a server of the API whose token endpoint accepts everything.
func newAPI(t *testing.T, routes map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
	})
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// answer returns a handler that answers with data.
func answer(data string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		_, _ = fmt.Fprintf(w, `{"data":%s,"traceId":"0"}`, data)
	}
}

// refuse returns a handler that answers with an error.
func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"urn:svc:platform:billing:error:%s","displayMessage":"No.",`+
			`"target":"x"}],"traceId":"0123"}`, code)
	}
}

// JSON output is exactly the data that the API returns.
func TestJSONIsTheData(t *testing.T) {
	t.Parallel()
	for command, c := range map[string]struct{ pattern, data string }{
		"batches get b": {"GET /billing/sites/site/batches/b", `{"batchReference":"b","counts":{"pending":1},"new":[{"a":null}],
			"rows":[{"rowReference":"r","amount":9007199254740991}]}`},
		"intents get pi_1":     {"GET /checkout/site/payment-intent/pi_1", `{"paymentIntentId":"pi_1","state":"created"}`},
		"trace 01a2":           {"GET /traces/01a2", `{"traceId":"01a2","kind":"batch","rows":{"unconfirmed":1},"events":[]}`},
		"customers revoke a/b": {"POST /billing/sites/site/customers/a%2Fb/revocation", `{"customerReference":"a/b"}`},
	} {
		server := newAPI(t, map[string]http.HandlerFunc{c.pattern: answer(c.data)})
		for _, format := range []string{"json", "jsonl"} {
			r := svcctl(t.Context(), server.URL, append(strings.Fields(command), "-o", format)...)
			var got, want any
			for text, into := range map[string]*any{r.out: &got, c.data: &want} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatalf("%s: %v, %s", command, err, r.errOut)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-API +printed):\n%s", command, diff)
			}
			if format == "jsonl" && strings.Count(r.out, "\n") != 1 {
				t.Errorf("%s: %q", command, r.out)
			}
		}
	}
}

// A receiver with an invalid secret would refuse every webhook, so the command refuses the secret.
func TestReceiveRefusesInvalidSecret(t *testing.T) {
	t.Parallel()
	good := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 32))
	if err := checkSecret("", good); err != nil {
		t.Errorf("valid secret: %v", err)
	}
	for name, secret := range map[string]string{
		"empty":         "",
		"a response":    `{"data":{"endpoint":"default"},"traceId":"0"}`,
		"no prefix":     strings.TrimPrefix(good, "whsec_"),
		"short":         "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"long":          "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 33)),
		"URL alphabet":  strings.NewReplacer("+", "-", "/", "_").Replace(good),
		"no padding":    strings.TrimSuffix(good, "="),
		"a line break":  good + "\n",
		"only a prefix": "whsec_",
	} {
		r := svcctl(t.Context(), "http://127.0.0.1:0", "receive", "--listen", "127.0.0.1:0", "--secret", secret)
		if r.code != exitUsage || !strings.Contains(r.errOut, notASecret("--secret").Error()) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Arguments that are not UTF-8 never reach the API.
func TestArgumentsMustBeUTF8(t *testing.T) {
	t.Parallel()
	server := newAPI(t, map[string]http.HandlerFunc{"/": func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was called", r.Method, r.URL)
	}})
	for _, args := range [][]string{
		{"invitations", "create", "ren\xe9"}, {"batches", "get", "b\xff"}, {"trace", "\xff"},
		{"events", "list", "--site-id", "\xff"}, {"intents", "create", "5", "--order-id", "\xff"},
	} {
		if r := svcctl(t.Context(), server.URL, args...); r.code != exitUsage || !strings.Contains(r.errOut, "UTF-8") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// The exit code and the message say what kind of error it was.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	api := func(status int, code string) string {
		return newAPI(t, map[string]http.HandlerFunc{"/": refuse(status, code)}).URL
	}
	unauthorised := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
	}))
	defer unauthorised.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<html>`))
	}))
	defer page.Close()
	token := func(status int) string {
		server := httptest.NewServer(refuse(status, "x"))
		t.Cleanup(server.Close)
		return server.URL
	}
	torn := newAPI(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"data":`))
	}})
	closed := "http://" + localtest.FreeAddress(t)
	get := []string{"customers", "get", "ada"}
	for name, c := range map[string]struct {
		url  string
		args []string
		code int
		text string
	}{
		"help":               {"", []string{"help"}, 0, ""},
		"group":              {"", []string{"customers"}, 0, ""},
		"version":            {"", []string{"--version"}, 0, ""},
		"topic":              {"", []string{"help", "exit-codes"}, 0, ""},
		"unknown command":    {"", []string{"costumers"}, exitUsage, "unknown command"},
		"unknown subcommand": {"", []string{"customers", "lst"}, exitUsage, `unknown command "lst"`},
		"unknown flag":       {"", []string{"customers", "list", "--stat", "x"}, exitUsage, "--stat"},
		"unknown value":      {"", []string{"customers", "list", "--state", "x"}, exitUsage, "must be one of invited"},
		"unknown format":     {"", []string{"customers", "list", "-o", "xml"}, exitUsage, "must be one of table"},
		"one key for two": {"", []string{"invitations", "create", "a", "b", "--idempotency-key", "k"}, exitUsage,
			"name one customerReference"},
		"two forms of a QR code": {"", []string{"intents", "create", "1", "--qr", "--qr-code-format", "base64"}, exitUsage,
			"none of the others can be"},
		"no argument":        {"", []string{"customers", "get"}, exitUsage, "CUSTOMER is missing"},
		"too many":           {"", []string{"customers", "get", "a", "b"}, exitUsage, `"b" is one argument too many`},
		"no secret":          {"", []string{"receive"}, exitUsage, "WEBHOOK_SECRET or --secret must be whsec_"},
		"not a number":       {"", []string{"intents", "create", "12.50"}, exitUsage, "AMOUNT"},
		"not a URL":          {"ftp://x", get, exitUsage, "BASE_URL must be a URL"},
		"nothing answers":    {closed, get, exitNetwork, "nothing answers at " + closed + ", the base URL of the environment"},
		"another server":     {page.URL, get, exitNetwork, "does not answer like the service"},
		"credentials":        {unauthorised.URL, get, exitAuthentication, "does not accept the client id and secret of the environment"},
		"invalid request":    {token(400), get, exitAuthentication, "does not accept the client id and secret"},
		"sign in refused":    {token(403), get, exitAuthentication, "sign in at"},
		"sign in limited":    {token(429), get, exitUnavailable, "sign in at"},
		"sign in fails":      {token(503), get, exitUnavailable, "sign in at"},
		"no token endpoint":  {token(404), get, exitNetwork, "does not answer like the service"},
		"a redirect":         {token(302), get, exitNetwork, "does not answer like the service"},
		"torn answer":        {torn.URL, []string{"intents", "cancel", "pi_1"}, exitNetwork, "unexpected EOF"},
		"lost deletion":      {torn.URL, []string{"endpoints", "delete", "default"}, exitNetwork, "unexpected EOF"},
		"no secret file":     {"", []string{"receive", "--secret", "@/none"}, exitUsage, "--secret: open /none"},
		"no next secret":     {"", []string{"webhooks", "certify", "http://x/", "--secret", testSecret(1), "--next-secret", "@/none"}, exitUsage, "--next-secret: open /none"},
		"certify, no secret": {"", []string{"webhooks", "certify", "http://x/"}, exitUsage, "WEBHOOK_SECRET or --secret must be whsec_"},
		"bad next secret":    {"", []string{"webhooks", "certify", "http://x/", "--secret", testSecret(1), "--next-secret", "a"}, exitUsage, "svcctl: --next-secret must be whsec_"},
		"token":              {api(401, "auth:invalid-token"), get, exitAuthentication, "auth:invalid-token"},
		"scope":              {api(403, "auth:insufficient-scope"), get, exitAuthentication, "auth:insufficient-scope"},
		"not found":          {api(404, "customers:customer-not-found"), get, exitNotFound, "x No. (customers:customer-not-found)\n  trace 0123"},
		"refused":            {api(400, "requests:invalid-field"), get, exitRefused, "requests:invalid-field"},
		"conflict":           {api(409, "invitations:customer-reference-active"), []string{"invitations", "create", "ada"}, exitRefused, "svcctl: ada: 409 Conflict"},
		"limit":              {api(429, "requests:rate-limited"), get, exitUnavailable, "requests:rate-limited"},
	} {
		r := svcctl(t.Context(), c.url, c.args...)
		if r.code != c.code || !strings.Contains(r.errOut, c.text) || c.code != 0 && r.out != "" {
			t.Errorf("%s: %+v, want %d and %q", name, r, c.code, c.text)
		}
	}
}

// The service comes from the first source that names one, and an error names the source.
func TestServiceOfTheCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const info = `{"baseUrl":"http://sandbox","organisations":[{"clientId":"cli_1","clientSecret":"s",
		"sites":[{"siteId":"site_1"},{"siteId":"site_2"}]}]}`
	const stored = `{"active":"office","profiles":{
		"office":{"baseUrl":"http://office","clientId":"i","clientSecret":"s","sites":["o1","o2"]},
		"shop":{"baseUrl":"http://shop","clientId":"i","clientSecret":"s"}}}`
	for name, content := range map[string]string{"sandbox.json": info, "profiles.json": stored, "broken.json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profiles := filepath.Join(dir, "profiles.json")
	with := func(pairs ...string) map[string]string {
		environment := map[string]string{"SVC_DATA_DIR": dir, "SVCCTL_CONFIG": filepath.Join(dir, "none.json")}
		for i := 0; i < len(pairs); i += 2 {
			environment[pairs[i]] = pairs[i+1]
		}
		return environment
	}
	credentials := []string{"BASE_URL", "http://env", "CLIENT_ID", "i", "CLIENT_SECRET", "s"}
	for name, test := range map[string]struct {
		environment       map[string]string
		site, profile     string // flags
		url, wants, fault string
	}{
		"sandbox":             {with(), "", "", "http://sandbox", "site_1", ""},
		"its Site":            {with(), "site_2", "", "http://sandbox", "site_2", ""},
		"environment":         {with(append(credentials, "SITE", "x")...), "", "", "http://env", "x", ""},
		"flag over variable":  {with(append(credentials, "SITE", "x")...), "y", "", "http://env", "y", ""},
		"no Site":             {with(credentials...), "", "", "", "", "set --site or SITE"},
		"incomplete":          {with("BASE_URL", "http://env"), "", "", "", "", "CLIENT_ID and CLIENT_SECRET must be set too"},
		"not a URL":           {with("BASE_URL", "env", "CLIENT_ID", "i", "CLIENT_SECRET", "s"), "", "", "", "", `BASE_URL must be a URL such as https://api.example.com, not "env"`},
		"profile in use":      {with("SVCCTL_CONFIG", profiles), "", "", "http://office", "o1", ""},
		"profile and SITE":    {with("SVCCTL_CONFIG", profiles, "SITE", "o2"), "", "", "http://office", "o2", ""},
		"SVCCTL_PROFILE":      {with("SVCCTL_CONFIG", profiles, "SVCCTL_PROFILE", "shop", "SITE", "z"), "", "", "http://shop", "z", ""},
		"environment first":   {with(append(credentials, "SVCCTL_CONFIG", profiles, "SVCCTL_PROFILE", "shop", "SITE", "x")...), "", "", "http://env", "x", ""},
		"--profile first":     {with(append(credentials, "SVCCTL_CONFIG", profiles)...), "", "office", "http://office", "o1", ""},
		"unknown profile":     {with("SVCCTL_CONFIG", profiles), "", "none", "", "", `--profile: there is no profile "none"`},
		"unknown in variable": {with("SVCCTL_CONFIG", profiles, "SVCCTL_PROFILE", "none"), "", "", "", "", `SVCCTL_PROFILE: there is no profile "none"`},
		"broken profiles":     {with("SVCCTL_CONFIG", filepath.Join(dir, "broken.json")), "", "", "", "", "broken.json is not a profile file"},
		"nothing":             {with("SVC_DATA_DIR", dir+"/none"), "", "", "", "", "no service is named"},
	} {
		getenv := func(name string) string { return test.environment[name] }
		c := &ctl{getenv: getenv, site: test.site, profile: test.profile}
		s, err := c.service()
		var site string
		if err == nil {
			site, err = c.siteOf(s)
		}
		switch {
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%s: %v", name, err)
		case test.fault == "" && (err != nil || s.baseURL != test.url || site != test.wants):
			t.Errorf("%s: %q, %q, %v", name, s.baseURL, site, err)
		}
	}
}

// An edited profile file may hold null instead of profiles.
func TestLoginWithoutProfiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "profiles.json")
	if err := os.WriteFile(file, []byte(`{"profiles":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return map[string]string{"SVCCTL_CONFIG": file}[name] }
	c := &ctl{getenv: getenv, in: strings.NewReader("secret\n"), out: io.Discard, errOut: io.Discard, site: "s"}
	if err := c.login(t.Context(), "office", profile{BaseURL: "http://office", ClientID: "i"}, true); err != nil {
		t.Fatal(err)
	}
	stored, err := c.loadProfiles()
	if err != nil || stored.Active != "office" || stored.Profiles["office"].ClientSecret != "secret" {
		t.Errorf("stored %+v, %v", stored, err)
	}
}
