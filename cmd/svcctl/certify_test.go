package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local/localtest"
)

// receiver answers a webhook with a status.
type receiver func(r *http.Request, body []byte) int

// ServeHTTP implements http.Handler.
func (f receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(f(r, body))
}

// bodySigned reports whether x-svc-signature is that of a body, as a reader of the specification
// verifies it.
func bodySigned(r *http.Request, secret string, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	given, err := base64.StdEncoding.DecodeString(r.Header.Get("x-svc-signature"))
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

// verdicts certifies a receiver, and returns the rules that it breaks and the advice.
func verdicts(t *testing.T, handler http.Handler, args ...string) (failed, advised []string, r result) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	certify := []string{"webhooks", "certify", server.URL + "/hook", "--secret", testSecret(1), "-o", "jsonl"}
	r = svcctl(t.Context(), "", append(certify, args...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(lines) != len(rules) {
		t.Fatalf("%d verdicts: %+v", len(lines), r)
	}
	for _, line := range lines {
		var v verdict
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		switch v.Result {
		case resultFailed:
			failed = append(failed, v.Rule)
		case resultAdvised:
			advised = append(advised, v.Rule)
		}
		if (v.Result == resultPassed) != (v.Advice == "") {
			t.Errorf("%+v", v)
		}
	}
	return failed, advised, r
}

// The handler of the Go client keeps every rule.
func TestCertifyPassesTheClientsHandler(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	handle := func(_ context.Context, e client.Event) error {
		seen[e.Type]++
		return nil
	}
	failed, advised, r := verdicts(t, client.WebhookHandler(handle, testSecret(1)), "--strict")
	if r.code != 0 || len(failed)+len(advised) != 0 {
		t.Errorf("%v, %v, %+v", failed, advised, r)
	}
	// Good, exact bytes, three duplicates, two reordered, rotation and the test.
	if seen[client.EventTransactionStatus] != 9 || seen["somethingNew"] != 1 || seen[client.EventBatchSettled] != 1 {
		t.Errorf("accepted %v", seen)
	}
	both := client.WebhookHandler(handle, testSecret(1), testSecret(2))
	if failed, _, r := verdicts(t, both, "--strict", "--next-secret", testSecret(2)); r.code != 0 {
		t.Errorf("with both secrets: %v, %+v", failed, r)
	}
}

// A receiver of the specification's signature alone passes; the time of a signature is advice.
func TestCertifyAdvisesOnStaleSignatures(t *testing.T) {
	t.Parallel()
	plain := receiver(func(r *http.Request, body []byte) int {
		if !bodySigned(r, testSecret(1), body) {
			return http.StatusUnauthorized
		}
		return http.StatusOK
	})
	failed, advised, r := verdicts(t, plain)
	if r.code != 0 || len(failed) != 0 || !slices.Equal(advised, []string{"stale signature", "removed headers"}) ||
		!strings.Contains(r.errOut, "stale signature: x-svc-signature does not cover the time") {
		t.Errorf("%v, %v, %+v", failed, advised, r)
	}
	if failed, _, r := verdicts(t, plain, "--strict"); r.code != exitIncomplete || len(failed) != 2 {
		t.Errorf("strict: %v, %+v", failed, r)
	}
	// After x-svc-signature has moved, the receiver must know the next secret.
	if failed, _, _ := verdicts(t, plain, "--next-secret", testSecret(2)); !slices.Equal(failed, []string{"rotation"}) {
		t.Errorf("after a rotation: %v", failed)
	}
}

// Each bad receiver breaks the rules that it should, and no other.
func TestCertifyFindsBadReceivers(t *testing.T) {
	t.Parallel()
	// good returns a receiver that keeps every rule, unless bad answers with another status than 0.
	good := func(bad func(r *http.Request, body []byte) int) receiver {
		return func(r *http.Request, body []byte) int {
			if status := bad(r, body); status != 0 {
				return status
			}
			if _, err := client.ParseEvent(r.Header, body, testSecret(1)); err != nil {
				return http.StatusUnauthorized
			}
			return http.StatusNoContent
		}
	}
	bodyOf := func(body []byte) (e struct {
		Type string
		Test bool
		Data struct {
			IdempotencyKey     string
			TransactionUpdated int64
		}
	}) {
		_ = json.Unmarshal(body, &e)
		return e
	}
	var mu sync.Mutex
	keys, latest := map[string]bool{}, int64(0)
	for name, c := range map[string]struct {
		receiver receiver
		broken   string
	}{
		"accepts everything": {
			func(*http.Request, []byte) int { return 200 },
			"wrong signature, no signature, changed body, stale signature, removed headers",
		},
		"refuses everything": {
			func(*http.Request, []byte) int { return 401 },
			"good event, exact bytes, duplicate, reordered events, rotation, unknown type, further event, test event",
		},
		"redirects": {
			good(func(r *http.Request, _ []byte) int {
				if r.URL.Path == "/hook" && r.Header.Get("svc-event-type") == client.EventBatchSettled {
					return 302
				}
				return 0
			}), "further event",
		},
		"writes the body again before it verifies": {
			good(func(r *http.Request, body []byte) int {
				var parsed any
				decoder := json.NewDecoder(bytes.NewReader(body))
				decoder.UseNumber()
				if decoder.Decode(&parsed) != nil {
					return 400
				}
				if bytes.Contains(body, []byte(`\u003c`)) { // other bodies come out as they went in
					again, _ := json.Marshal(parsed)
					if !bodySigned(r, testSecret(1), again) {
						return 401
					}
				}
				return 0
			}), "exact bytes",
		},
		"refuses duplicates": {
			good(func(_ *http.Request, body []byte) int {
				mu.Lock()
				defer mu.Unlock()
				key := bodyOf(body).Data.IdempotencyKey
				if keys[key] {
					return 409
				}
				keys[key] = true
				return 0
			}), "duplicate",
		},
		"refuses what is older than the latest": {
			good(func(r *http.Request, body []byte) int {
				if _, err := client.ParseEvent(r.Header, body, testSecret(1)); err != nil {
					return 401
				}
				mu.Lock()
				defer mu.Unlock()
				at := bodyOf(body).Data.TransactionUpdated
				if at != 0 && at < latest {
					return 409
				}
				latest = max(latest, at)
				return 0
			}), "reordered events",
		},
		"looks whether there is a signature": {
			func(r *http.Request, _ []byte) int {
				if r.Header.Get("x-svc-signature") == "" {
					return 401
				}
				return 200
			}, "wrong signature, changed body, stale signature, removed headers",
		},
		"verifies only if there is a signature": {
			good(func(r *http.Request, _ []byte) int {
				if r.Header.Get("webhook-signature") == "" {
					return 200
				}
				return 0
			}), "no signature, removed headers",
		},
		"fails on a bad signature": {
			good(func(r *http.Request, body []byte) int {
				if _, err := client.ParseEvent(r.Header, body, testSecret(1)); err != nil {
					return 500
				}
				return 0
			}), "wrong signature, no signature, changed body, stale signature, removed headers",
		},
		"is gone for a bad signature": {
			good(func(r *http.Request, body []byte) int {
				if _, err := client.ParseEvent(r.Header, body, testSecret(1)); err != nil {
					return 410
				}
				return 0
			}), "wrong signature, no signature, changed body, stale signature, removed headers",
		},
		"expects one signature": {
			good(func(r *http.Request, _ []byte) int {
				if strings.Contains(r.Header.Get("webhook-signature"), " ") {
					return 401
				}
				return 0
			}), "rotation",
		},
		"verifies the body alone without webhook-signature": {
			good(func(r *http.Request, body []byte) int {
				if r.Header.Get("webhook-signature") == "" && bodySigned(r, testSecret(1), body) {
					return 200
				}
				return 0
			}), "removed headers",
		},
		"refuses unknown types": {
			good(func(_ *http.Request, body []byte) int {
				if t := bodyOf(body).Type; t != "" && !slices.Contains(eventTypes, t) {
					return 400
				}
				return 0
			}), "unknown type",
		},
		"knows final statuses only": {
			good(func(_ *http.Request, body []byte) int {
				if bodyOf(body).Type != "" {
					return 400
				}
				return 0
			}), "unknown type, further event",
		},
		"refuses tests": {
			good(func(_ *http.Request, body []byte) int {
				if bodyOf(body).Test {
					return 404
				}
				return 0
			}), "test event",
		},
	} {
		failed, _, r := verdicts(t, c.receiver, "--strict")
		if got := strings.Join(failed, ", "); got != c.broken || r.code != exitIncomplete {
			t.Errorf("%s: breaks %q, want %q; exit code %d", name, got, c.broken, r.code)
		}
	}
}

// The secrets come from the environment or from files, so that no flag shows them.
func TestCertifyTakesSecretsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, client.Event) error { return nil }
	server := httptest.NewServer(client.WebhookHandler(handle, testSecret(1), testSecret(2)))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(file, []byte(testSecret(2)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		next string // WEBHOOK_NEXT_SECRET
		args []string
		code int
		sent int // webhooks of the rule "rotation": a second one if the next secret is known
	}{
		"variables":      {testSecret(2), nil, 0, 2},
		"a file":         {"", []string{"--next-secret", "@" + file}, 0, 2},
		"no next secret": {"", nil, 0, 1},
		"not a secret":   {"x", nil, exitUsage, 0},
	} {
		environment := map[string]string{"WEBHOOK_SECRET": testSecret(1), "WEBHOOK_NEXT_SECRET": c.next}
		args := append([]string{"webhooks", "certify", server.URL, "-o", "jsonl"}, c.args...)
		r := runWith(t.Context(), environment, "", args...)
		_, rotation, _ := strings.Cut(r.out, `"rule":"rotation"`)
		rotation, _, _ = strings.Cut(rotation, "\n")
		if r.code != c.code || strings.Count(rotation, "204 in") != c.sent {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A receiver that is not there is an error of the network, not of a rule.
func TestCertifyNeedsAReceiver(t *testing.T) {
	t.Parallel()
	closed := "http://" + localtest.FreeAddress(t)
	r := svcctl(t.Context(), "", "webhooks", "certify", closed, "--secret", testSecret(1))
	if r.code != exitNetwork || r.out != "" || !strings.Contains(r.errOut, "no connection to "+closed) {
		t.Errorf("%+v", r)
	}
}

// The verdicts before a receiver stops are printed.
func TestCertifyPrintsTheVerdictsBeforeAnError(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "csv"} {
		ln, err := net.Listen("tcp", localtest.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(receiver(func(*http.Request, []byte) int {
			_ = ln.Close() // the first rule has one webhook
			return http.StatusNoContent
		}))
		_ = server.Listener.Close()
		server.Listener = ln
		server.Config.SetKeepAlivesEnabled(false) // each webhook opens a connection
		server.Start()
		r := svcctl(t.Context(), "", "webhooks", "certify", server.URL, "--secret", testSecret(1), "-o", format)
		server.Close()
		if r.code != exitNetwork || !strings.Contains(r.out, rules[0].name) {
			t.Errorf("%s: %+v", format, r)
		}
		if format == "json" && !json.Valid([]byte(r.out)) {
			t.Errorf("not JSON: %s", r.out)
		}
	}
}
