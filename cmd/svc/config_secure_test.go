package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
)

// strong is a configuration that production accepts.
var strong = map[string]string{
	"SVC_ENV": "production", "SVC_DATABASE_URL": "postgres://svc:pw@db/svc?sslmode=verify-full",
	"SVC_REDIS_URL": "rediss://:pw@redis:6379", "SVC_RAIL_URL": "https://rail.example",
	"SVC_RAIL_KEY": "id:" + strings.Repeat("s", 32), "SVC_OPS_PASSWORD": strings.Repeat("p", 16),
	"SVC_ISSUER_URL": "https://id.example", "SVC_ISSUER_JWKS_URL": "https://id.example/keys", "SVC_ISSUER_AUDIENCE": "a",
}

// complaints returns the error of a start in production with changed variables; "": none.
func complaints(t *testing.T, changes map[string]string) string {
	t.Helper()
	var environ []string
	for name, value := range strong {
		if changed, ok := changes[name]; ok {
			value = changed
		}
		environ = append(environ, name+"="+value)
	}
	for name, value := range changes {
		if _, ok := strong[name]; !ok {
			environ = append(environ, name+"="+value)
		}
	}
	cfg, err := parseConfig(environ)
	if err == nil {
		err = cfg.complete("")
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProductionRefusesWeakSettings(t *testing.T) {
	t.Parallel()
	if got := complaints(t, nil); got != "" {
		t.Fatalf("strong settings: %s", got)
	}
	weak := []struct{ variable, value, allow string }{
		{"SVC_RAIL_KEY", "id:" + strings.Repeat("s", 31), ""},
		{"SVC_OPS_PASSWORD", strings.Repeat("p", 15), ""},
		{"SVC_RAIL", "sandbox", ""},
		{"SVC_WEBHOOK_LOOPBACK", "on", ""},
		{"SVC_RAIL_URL", "http://rail.example", "rail"},
		{"SVC_ISSUER_URL", "http://id.example", "issuer"},
		{"SVC_ISSUER_JWKS_URL", "http://id.example/keys", "issuer"},
		{"SVC_DATABASE_URL", "postgres://svc:pw@db/svc", "postgres"},
		{"SVC_DATABASE_URL", "postgres://svc:pw@db/svc?sslmode=disable", "postgres"},
		{"SVC_DATABASE_URL", "postgres://svc:pw@db/svc?sslmode=require", "postgres"},
		{"SVC_DATABASE_URL", "postgres://svc:pw@db/svc?sslmode=verify-ca", "postgres"},
		{"SVC_DATABASE_READ_URL", "postgres://svc:pw@standby/svc", "postgres"},
		{"SVC_REDIS_URL", "redis://:pw@redis:6379", "redis"},
		{"SVC_REDIS_URL", "rediss://redis:6379", "redis"},
	}
	all := map[string]string{}
	for _, w := range weak {
		if got := complaints(t, map[string]string{w.variable: w.value}); !strings.HasPrefix(got, w.variable+" must") ||
			strings.Contains(got, "\n") {
			t.Errorf("%s=%s: %q", w.variable, w.value, got)
		}
		if w.allow != "" {
			got := complaints(t, map[string]string{w.variable: w.value, "SVC_ALLOW_PLAIN": "unused," + w.allow})
			if !strings.Contains(got, "SVC_ALLOW_PLAIN must list") {
				t.Errorf("an unknown part: %q", got)
			}
			if got := complaints(t, map[string]string{w.variable: w.value, "SVC_ALLOW_PLAIN": w.allow}); got != "" {
				t.Errorf("%s=%s is allowed: %q", w.variable, w.value, got)
			}
		}
		all[w.variable] = w.value
	}
	everything := complaints(t, all)
	for variable := range all {
		if !strings.Contains(everything, variable+" must") {
			t.Errorf("%s is missing among all: %s", variable, everything)
		}
	}
	for _, dsn := range []string{
		"postgres:///svc?host=/var/run/postgresql", "postgres://a,b/svc?sslmode=verify-full&target_session_attrs=read-write",
	} {
		if got := complaints(t, map[string]string{"SVC_DATABASE_URL": dsn}); got != "" {
			t.Errorf("%s: %s", dsn, got)
		}
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range variables() {
		name := f.Tag.Get("env")
		if f.Tag.Get("secret") != "true" || name == "SVC_MASTER_KEY" {
			continue
		}
		if _, err := parseConfig([]string{name + "_FILE=" + file, name + "=x"}); err == nil ||
			!strings.Contains(err.Error(), name+" and "+name+"_FILE are both set") {
			t.Errorf("%s twice: %v", name, err)
		}
		if _, err := parseConfig([]string{name + "_FILE=" + file + "x"}); err == nil ||
			!strings.Contains(err.Error(), name+"_FILE") {
			t.Errorf("%s_FILE that is missing: %v", name, err)
		}
	}
	cfg, err := parseConfig([]string{"SVC_OPS_PASSWORD_FILE=" + file, "SVC_RAIL_KEY_FILE=" + file})
	if err != nil || cfg.OpsPassword != "a secret" || cfg.RailKey != "a secret" {
		t.Errorf("%q, %q, %v", cfg.OpsPassword, cfg.RailKey, err)
	}
	if _, err := parseConfig([]string{"SVC_LISTEN_FILE=" + file}); err == nil {
		t.Error("SVC_LISTEN_FILE is accepted")
	}
}

// certificateFiles writes a self-signed certificate for 127.0.0.1 and its key, and returns both
// files and the pair.
func certificateFiles(t *testing.T) (cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: t.Name()}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// The rail's client verifies the gateway by the configured authority, and shows its own
// certificate.
func TestRailUsesItsCertificates(t *testing.T) {
	t.Parallel()
	serverCert, _, serverPair := certificateFiles(t)
	clientCert, clientKey, clientPair := certificateFiles(t)
	clients := x509.NewCertPool()
	clients.AddCert(clientPair.Leaf)
	asked := make(chan string, 10)
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.TLS.PeerCertificates[0].Subject.CommonName
		w.WriteHeader(http.StatusNotFound)
	}))
	gateway.TLS = &tls.Config{
		Certificates: []tls.Certificate{serverPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}
	gateway.StartTLS()
	t.Cleanup(gateway.Close)
	lookup := func(environ ...string) int {
		t.Helper()
		cfg, err := parseConfig(environ)
		if err != nil {
			t.Fatal(err)
		}
		secure, err := cfg.railTLS()
		if err != nil {
			t.Fatal(err)
		}
		client, err := rail.NewHTTP(rail.HTTPConfig{
			BaseURL: gateway.URL, TLS: secure, Key: rail.SigningKey{ID: "id", Secret: []byte("secret")},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.Lookup(t.Context(), []string{"key"}, func(int, rail.Result) {})
		return len(asked)
	}
	ca := "SVC_RAIL_TLS_CA_FILE=" + serverCert
	cert, key := "SVC_RAIL_TLS_CERT_FILE="+clientCert, "SVC_RAIL_TLS_KEY_FILE="+clientKey
	if n := lookup(cert, key); n != 0 {
		t.Error("an unknown authority is trusted")
	}
	if n := lookup(ca); n != 0 {
		t.Error("the gateway was asked without a certificate")
	}
	if n := lookup(ca, cert, key); n != 1 {
		t.Errorf("the gateway was asked %d times", n)
	}
	cfg, err := parseConfig([]string{cert})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.railTLS(); err == nil || !strings.Contains(err.Error(), "go together") {
		t.Errorf("a certificate without its key: %v", err)
	}
}
