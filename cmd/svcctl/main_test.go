package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// svcctl runs a command as a partner of the API at url.
func svcctl(ctx context.Context, url string, args ...string) (string, error) {
	environment := map[string]string{"BASE_URL": url, "CLIENT_ID": "id", "CLIENT_SECRET": "secret", "SITE": "site"}
	var out bytes.Buffer
	err := run(ctx, args, func(name string) string { return environment[name] }, &out)
	return out.String(), err
}

// Commands print exactly the fields that the API returns.
func TestCommandsPrintResponses(t *testing.T) {
	t.Parallel()
	const summary = `"batchReference":"b","state":"inProgress","submittedAt":1,"settleBy":2,"rowCount":2,
	"totalAmount":5,		"counts":{"pending":1,"inProgress":0,"settled":1,"succeeded":0,"failed":1},"succeededAmount":0`
	for command, data := range map[string]string{
		"batch b": `{` + summary + `,"rows":[
		{"rowReference":"r","customerReference":"c","amount":2,"state":"pending","attempts":0},
		{"rowReference":"s","customerReference":"c","amount":3,"state":"settled","outcome":"unconfirmed",
		 "correctedOutcome":"succeeded","settledAt":1,"attempts":1}]}`,
		"trace 01a2": `{"traceId":"01a2","at":1,"kind":"batch","batch":{` + summary + `},
		"rows":{"unconfirmed":1},"attempts":0,"events":[
		{"idempotencyKey":"evt_1","type":"rowCorrected","status":"pending","attempts":0}]}`,
		"trace 01a3": `{"traceId":"01a3","at":1,"kind":"invitation",
		"customer":{"customerReference":"c","state":"revoked","invitedAt":1},"events":[]}`,
	} {
		path := map[string]string{"batch": "/billing/sites/site/batches/", "trace": "/traces/"}[command[:5]] +
			command[6:]
		mux := http.NewServeMux()
		mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"access_token":"token","expires_in":3600}`))
		})
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"data":` + data + `,"traceId":"0"}`))
		})
		server := httptest.NewServer(mux)
		out, err := svcctl(t.Context(), server.URL, strings.Fields(command)...)
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		for text, into := range map[string]*any{out: &got, data: &want} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-API +printed):\n%s", command, diff)
		}
	}
}

// A receiver with an invalid secret would refuse every webhook, so the command refuses the secret.
func TestReceiveRefusesInvalidSecret(t *testing.T) {
	t.Parallel()
	good := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 32))
	if err := checkSecret(good); err != nil {
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
		_, err := svcctl(t.Context(), "http://127.0.0.1:0", "receive", "--listen", "127.0.0.1:0", "--secret", secret)
		if !errors.Is(err, errNotASecret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
