package main

import (
	"context"
	"net/url"
	"regexp"
	"testing"

	"partnerbilling/deploy/local"
)

// PostgreSQL that requires certificates is reached by sslmode=verify-full with the authority, the
// certificate and the key in the URL. Wrong ones are refused with a message that says so.
func TestPostgresWithCertificates(t *testing.T) {
	t.Parallel()
	certs, err := local.NewCertificates(t.TempDir())
	must(t, err)
	other, err := local.NewCertificates(t.TempDir())
	must(t, err)
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutRedis: true, Certificates: certs})
	must(t, err)
	t.Cleanup(func() { must(t, servers.Stop(context.Background())) })
	for name, tt := range map[string]struct {
		change map[string]string // parameters of the URL
		want   string            // a pattern of the error, "": success
	}{
		"right":             {nil, ""},
		"another authority": {map[string]string{"sslrootcert": other.CAFile}, "certificate signed by unknown authority"},
		"no certificate":    {map[string]string{"sslcert": "", "sslkey": ""}, "connection requires a valid client certificate"},
		// The server may close the connection before the client has read why.
		"another client": {map[string]string{"sslcert": other.ClientCertFile, "sslkey": other.ClientKeyFile},
			"unknown certificate authority|connection reset by peer|broken pipe"},
		"no TLS": {map[string]string{"sslmode": "disable", "sslrootcert": "", "sslcert": "", "sslkey": ""},
			"no pg_hba.conf entry"},
	} {
		dsn, err := url.Parse(servers.DatabaseURL)
		must(t, err)
		query := dsn.Query()
		for parameter, value := range tt.change {
			if query.Set(parameter, value); value == "" {
				query.Del(parameter)
			}
		}
		dsn.RawQuery = query.Encode()
		code, out, stderr := svc(t, map[string]string{"SVC_DATABASE_URL": dsn.String()}, "migrate", "up")
		if ok := code == 0; ok != (tt.want == "") || !regexp.MustCompile(tt.want).MatchString(out+stderr) {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, stderr)
		}
	}
}
