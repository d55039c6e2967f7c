package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// admin runs svc admin on a database of its own.
type admin struct {
	*testing.T
	env map[string]string
}

func newAdmin(t *testing.T) admin {
	t.Parallel()
	return admin{t, map[string]string{"SVC_DATABASE_URL": modelstest.DSN(t),
		"SVC_MASTER_KEY": modelstest.MasterKey}}
}

// run runs a command that must succeed, and returns its output.
func (a admin) run(args ...string) string {
	a.Helper()
	code, out, stderr := svc(a.T, a.env, append([]string{"admin"}, args...)...)
	if code != 0 {
		a.Fatalf("svc admin %v: %s", args, stderr)
	}
	return strings.TrimSpace(out)
}

// fails runs a command that must fail with an error message for people.
func (a admin) fails(args ...string) {
	a.Helper()
	code, _, stderr := svc(a.T, a.env, append([]string{"admin"}, args...)...)
	if code != 1 || stderr == "" || strings.Contains(stderr, "SQLSTATE") {
		a.Errorf("svc admin %v: exit code %d: %s", args, code, stderr)
	}
}

// The error of a malformed id quotes it.
func TestMalformedIDIsQuoted(t *testing.T) {
	t.Parallel()
	organisation := models.OrganisationID{1}.String()
	for _, args := range [][]string{
		{"site", "add", "nowhere", "A Site"}, {"client", "list", "nowhere"}, {"client", "add", "nowhere"},
		{"organisation", "colour", "nowhere", "none"}, {"customer", "export", "nowhere", "ada"},
		{"keys", "retire", "nowhere"}, {"recount", "nowhere"}, {"log", "--organisation", "nowhere"},
		{"alerts", "close", "lateTruth", "--organisation", "nowhere"}, {"webhook", "unpark", "nowhere"},
		{"webhook", "unpark", organisation, "nowhere"},
	} {
		code, _, stderr := svc(t, nil, append([]string{"admin"}, args...)...)
		if code != 1 || !strings.Contains(stderr, `"nowhere": `) {
			t.Errorf("svc admin %v: exit code %d: %s", args, code, stderr)
		}
	}
}

func TestAdminSetsUpAPartner(t *testing.T) {
	a := newAdmin(t)
	organisation := a.run("organisation", "add", "A partner")
	site := a.run("site", "add", organisation, "A Site")
	id, secret, _ := strings.Cut(a.run("client", "add", organisation, "--scopes", "billing:customers:read"), " ")
	if !strings.HasPrefix(secret, "svcs_") {
		t.Errorf("secret %q", secret)
	}
	if list := a.run("organisation", "list"); !strings.Contains(list, organisation) || !strings.Contains(list, site) {
		t.Errorf("list:\n%s", list)
	}
	second := a.run("client", "secret", "add", id)
	secrets := strings.Split(a.run("client", "secret", "list", id), "\n")
	if second == secret || len(secrets) != 3 {
		t.Errorf("secrets:\n%s", secrets)
	}
	a.run("client", "secret", "remove", id, strings.Fields(secrets[1])[0])
	a.run("client", "disable", id)
	a.run("client", "enable", id)
	a.run("client", "add", "customer-app")
	if got := a.run("audit"); got != "audit clean" {
		t.Errorf("audit: %s", got)
	}
	if code, out, _ := svc(t, a.env, "migrate", "status"); code != 0 || !strings.HasPrefix(out, "0 ") {
		t.Errorf("migrate status: %s", out)
	}
}

func TestAdminColoursAnOrganisation(t *testing.T) {
	a := newAdmin(t)
	organisation := a.run("organisation", "add", "Harbour Rentals", "--colour", "#1F5FAE")
	plain := a.run("organisation", "add", "Hill Water")
	listed := func(id, colour string) {
		t.Helper()
		_, row, _ := strings.Cut(a.run("organisation", "list"), id)
		if fields := strings.Fields(row); len(fields) == 0 || fields[0] != colour {
			t.Errorf("%s: %q, want the colour %s", id, fields, colour)
		}
	}
	listed(organisation, "#1f5fae")
	listed(plain, "none")
	a.run("organisation", "colour", plain, "#ffff99")
	listed(plain, "#ffff99")
	a.run("organisation", "colour", organisation, "none")
	listed(organisation, "none")
	for _, args := range [][]string{
		{"colour", plain, "yellow"}, {"colour", plain, "#ff9"}, {"colour", plain, ""},
		{"add", "Another", "--colour", "1f5fae"},
	} {
		code, _, stderr := svc(t, a.env, append([]string{"admin", "organisation"}, args...)...)
		if code != 1 || !strings.Contains(stderr, "six hexadecimal digits, such as #1f5fae") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	a.fails("organisation", "colour", "org_01932c07-0000-7000-8000-000000000001", "#101010")
	listed(plain, "#ffff99")
	if list := a.run("organisation", "list"); strings.Contains(list, "Another") {
		t.Errorf("a refused organisation is listed:\n%s", list)
	}
}

func TestAdminRotatesAndRetiresKeys(t *testing.T) {
	a := newAdmin(t)
	first, _, _ := strings.Cut(a.run("keys", "rotate", "accessToken"), ",")
	second, _, _ := strings.Cut(a.run("keys", "rotate", "accessToken"), ",")
	if list := a.run("keys", "list"); !strings.Contains(list, first) || !strings.Contains(list, second) {
		t.Errorf("%s and %s are not listed:\n%s", first, second, list)
	}
	a.fails("keys", "rotate", "accessToken") // at most two keys are live
	a.run("keys", "retire", first)
	if list := a.run("keys", "list"); strings.Contains(list, first) || !strings.Contains(list, second) {
		t.Errorf("%s is still listed, or the other key is not:\n%s", first, list)
	}
	a.fails("keys", "retire", first)
}

func TestAdminClosesAlerts(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	_, err := store.DB().ExecContext(t.Context(), `
INSERT INTO alerts (kind, subject, detail, trace_id, raised_at)
VALUES ('lateTruth', 'subject', '', repeat('0', 32), 1)`)
	if err != nil {
		t.Fatal(err)
	}
	if list := a.run("alerts"); !strings.Contains(list, "1970-01-01 00:00:00Z  lateTruth  subject") {
		t.Errorf("alerts:\n%s", list)
	}
	a.run("alerts", "close", "lateTruth", "subject")
	if list := a.run("alerts"); strings.Contains(list, "lateTruth") {
		t.Errorf("the closed alert is still listed:\n%s", list)
	}
}

// The list of alerts names the partners, and closes all alerts of one that was told.
func TestAdminClosesAlertsOfAPartner(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	site := modelstest.Site(t, store)
	for _, subject := range []string{"one", "two"} {
		_, err := store.DB().ExecContext(t.Context(), "SELECT raise_alert('lateTruth', ?, ?, ?, 'x', '')",
			subject, site.OrganisationID, site.ID)
		if err != nil {
			t.Fatal(err)
		}
	}
	organisation := site.OrganisationID.String()
	if list := a.run("alerts"); strings.Count(list, organisation+"  "+site.ID.String()) != 2 {
		t.Errorf("alerts:\n%s", list)
	}
	a.fails("alerts", "close", "lateTruth")
	a.fails("alerts", "close", "lateTruth", "one", "--organisation", organisation)
	a.fails("alerts", "close", "railForgot", "--organisation", organisation)
	if out := a.run("alerts", "close", "lateTruth", "--organisation", organisation); out != "2 alerts closed" {
		t.Errorf("closing: %s", out)
	}
	if list := a.run("alerts"); strings.Contains(list, "lateTruth") {
		t.Errorf("the closed alerts are still listed:\n%s", list)
	}
}

func TestAdminRecountsLinks(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	var want []string
	for range 2 {
		site := modelstest.Site(t, store)
		modelstest.Invite(t, store, site.ID, "acct-1")
		want = append(want, site.ID.String()+" 1")
	}
	if _, err := store.DB().ExecContext(t.Context(), "DELETE FROM link_changes"); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := svc(t, a.env, "admin", "audit"); code == 0 || strings.Count(out, "VIOLATION") != 2 {
		t.Errorf("audit: %d\n%s", code, out)
	}
	first, _, _ := strings.Cut(want[0], " ")
	if got := a.run("recount", first); got != want[0] {
		t.Errorf("recount of one Site: %q, want %q", got, want[0])
	}
	if got := a.run("recount"); got != strings.Join(want, "\n") {
		t.Errorf("recount: %q, want %q", got, want)
	}
	if got := a.run("audit"); got != "audit clean" {
		t.Errorf("audit: %s", got)
	}
}

// The rail of the database decides whether the audit reads the sandbox rail, not the configuration.
func TestAuditReadsTheRailOfTheDatabase(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	_, err := store.JoinDeployment(t.Context(), models.Deployment{Environment: models.EnvSandbox, Rail: "http"})
	must(t, err)
	_, err = store.DB().ExecContext(t.Context(), `
		INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, changed_at)
		VALUES ('p1_x', 'agr_x', 1, 'AUD', 'succeeded', 0)`)
	must(t, err)
	for _, rail := range []string{"http", "sandbox"} {
		must(t, store.ReplaceRail(t.Context(), rail, ""))
		for _, environment := range []string{"", string(models.EnvSandbox)} {
			code, out, stderr := svc(t, with(a.env, "SVC_ENV", environment), "admin", "audit")
			found := strings.Contains(out, "what the rail debited")
			if found != (rail == "sandbox") || found != (code != 0) {
				t.Errorf("%s rail, SVC_ENV %q: %d, %s%s", rail, environment, code, out, stderr)
			}
		}
	}
}

func TestAdminRefusesUnknownIDs(t *testing.T) {
	a := newAdmin(t)
	const unknown = "cli_01932c07-0000-7000-8000-000000000001"
	a.fails("site", "add", "org_nonsense", "x")
	a.fails("client", "add", "org_01932c07-0000-7000-8000-000000000001")
	a.fails("client", "disable", unknown)
	a.fails("client", "keys", "remove", unknown)
	a.fails("client", "keys", "set", unknown, "/nowhere")
	a.fails("client", "secret", "add", unknown)
	a.fails("keys", "rotate", "nonsense")
	a.fails("keys", "retire", "key_01932c07-0000-7000-8000-000000000001")
	a.fails("alerts", "close", "lateTruth", "nothing")
	a.fails("recount", "site_01932c07-0000-7000-8000-000000000001")
}

// A partner without a shared secret registers its public key and authenticates with assertions.
func TestAdminSetsClientKeys(t *testing.T) {
	a := newAdmin(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	jwk := map[string]string{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)}
	good := writeKeySet(t, jwk)
	jwk["d"] = base64.RawURLEncoding.EncodeToString(private.Seed())
	secret := writeKeySet(t, jwk)
	id, _, _ := strings.Cut(a.run("client", "add", a.run("organisation", "add", "A partner")), " ")
	token := a.tokenEndpoint()

	if got := token(assertion(id, private)); got != http.StatusUnauthorized {
		t.Errorf("without keys: %d", got)
	}
	a.fails("client", "keys", "set", id, secret)
	a.fails("client", "keys", "set", id, writeKeySet(t))
	a.run("client", "keys", "set", id, good)
	if got := token(assertion(id, private)); got != http.StatusOK {
		t.Errorf("with the key: %d", got)
	}
	a.run("client", "keys", "remove", id)
	if got := token(assertion(id, private)); got != http.StatusUnauthorized {
		t.Errorf("after the key was removed: %d", got)
	}
}

func writeKeySet(t *testing.T, keys ...map[string]string) string {
	t.Helper()
	content, err := json.Marshal(map[string]any{"keys": append([]map[string]string{}, keys...)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const issuerURL = "https://billing.example"

// assertion returns a signed client assertion (RFC 7523).
func assertion(client string, key ed25519.PrivateKey) string {
	encode := func(part map[string]any) string {
		text, _ := json.Marshal(part) // never fails
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := encode(map[string]any{"alg": "EdDSA"}) + "." + encode(map[string]any{
		"iss": client, "sub": client, "aud": issuerURL, "jti": models.NewTraceID(),
		"exp": time.Now().Add(time.Minute).Unix(),
	})
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(signed)))
}

// store opens the commands' database.
func (a admin) store() *models.Store {
	a.Helper()
	store, err := models.Open(postgres.Config{DSN: a.env["SVC_DATABASE_URL"]})
	if err != nil {
		a.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(a.T, modelstest.MasterKey))
	a.Cleanup(func() { _ = store.Close() })
	return store
}

// tokenEndpoint returns a function that requests a token with an assertion and returns the status.
func (a admin) tokenEndpoint() func(assertion string) int {
	a.Helper()
	store := a.store()
	ring, err := seal.ParseKeyring(a.env["SVC_MASTER_KEY"])
	if err != nil {
		a.Fatal(err)
	}
	keys := models.NewKeys(store, ring)
	if err := keys.Ensure(a.Context()); err != nil {
		a.Fatal(err)
	}
	issuer := auth.NewIssuer(store, keys, auth.Config{URL: issuerURL})
	return func(assertion string) int {
		form := url.Values{
			"grant_type":            {"client_credentials"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {assertion},
		}
		return issuer.Token(a.Context(), auth.TokenRequest{
			ContentType: "application/x-www-form-urlencoded", Body: []byte(form.Encode()),
			RemoteAddress: netip.MustParseAddr("192.0.2.1"),
		}).Status
	}
}

// An operator sees which credentials a client has and uses, narrows its scopes and its addresses.
func TestAdminShowsAndNarrowsClients(t *testing.T) {
	a := newAdmin(t)
	organisation := a.run("organisation", "add", "A partner")
	id, secret, _ := strings.Cut(a.run("client", "add", organisation, "--name", "billing run"), " ")
	a.run("client", "keys", "set", id, a.keySet())
	store := a.store()
	var parsed models.ClientID
	must(t, parsed.UnmarshalText([]byte(id)))
	must(t, store.RecordCredentialUse(t.Context(), parsed, models.FingerprintOf(secret)))
	shown := a.run("client", "show", id)
	for _, want := range []string{
		organisation, "billing run", "enabled", "addresses     any\n", models.FingerprintOf(secret) + "  secret  ",
		time.Now().UTC().Format(" 2006-01-02 "), "  key                           never",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	a.run("client", "scopes", id, "billing:batches:read", "billing:batches:write")
	a.run("client", "allow-addresses", id, "192.0.2.7", "2001:db8::/32")
	a.run("client", "disable", id)
	shown = a.run("client", "show", id)
	for _, want := range []string{
		"scopes        billing:batches:read billing:batches:write\n", "addresses     192.0.2.7/32 2001:db8::/32\n", "disabled",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	a.run("client", "allow-addresses", id, "any")
	if shown = a.run("client", "show", id); !strings.Contains(shown, "addresses     any\n") {
		t.Errorf("show:\n%s", shown)
	}
	app, _, _ := strings.Cut(a.run("client", "add", "customer-app"), " ")
	for args, want := range map[string][]string{"": {id, app}, organisation: {id}, "customer-app": {app}} {
		list := a.run(append([]string{"client", "list"}, strings.Fields(args)...)...)
		if strings.Count(list, "\n") != len(want) || !strings.Contains(list, want[0]) {
			t.Errorf("list %s:\n%s", args, list)
		}
	}
	a.fails("client", "scopes", id, "customer-app:payments:write")
	a.fails("client", "allow-addresses", id, "192.0.2.7/24")
	a.fails("client", "allow-addresses", id, "nonsense")
	a.fails("client", "allow-addresses", id, "192.0.2.7", "192.0.2.7")
	a.fails("client", "show", "cli_01932c07-0000-7000-8000-000000000001")
	a.fails("client", "list", "org_nonsense")
}
