package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"partnerbilling/api/web/webtest"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/local/localtest"
)

// guideReceiver matches a program of the guide: its language and its text.
var guideReceiver = regexp.MustCompile("(?ms)^```(go|typescript|python|php|ruby)\n(.*?)^```$")

// receiverCommands start the programs of the guide. Node runs the TypeScript program as it is: it
// needs no types.
var receiverCommands = map[string]struct {
	file    string
	command func(file, address string) []string
}{
	"go":         {"main.go", func(file, _ string) []string { return []string{"go", "run", file} }},
	"typescript": {"receiver.mjs", func(file, _ string) []string { return []string{"node", file} }},
	"python":     {"receiver.py", func(file, _ string) []string { return []string{"python3", file} }},
	"php":        {"receiver.php", func(file, address string) []string { return []string{"php", "-S", address, file} }},
	"ruby":       {"receiver.rb", func(file, _ string) []string { return []string{"ruby", file} }},
}

// Every receiver of the guide accepts what the service signs, and refuses everything else.
// Languages that are not installed are reported and left out.
func TestGuideReceiversVerify(t *testing.T) {
	t.Parallel()
	programs := guideReceiver.FindAllStringSubmatch(readDocument(t, "api/docs/guides/verify-webhooks.md"), -1)
	if len(programs) != len(receiverCommands) {
		t.Fatalf("the guide has %d programs", len(programs))
	}
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for _, m := range programs {
		t.Run(m[1], func(t *testing.T) {
			t.Parallel()
			startReceiver(t, m[1], m[2], "WEBHOOK_SECRET="+secret).verifies(t, secret)
		})
		t.Run(m[1]+" without a secret", func(t *testing.T) {
			t.Parallel()
			startReceiver(t, m[1], m[2], "WEBHOOK_SECRET=").refusesToRun(t)
		})
	}
}

// receiver is a running program of the guide.
type receiver struct {
	language, address string
	cmd               *exec.Cmd
	output            *bytes.Buffer
}

// startReceiver starts a program of the guide on a free port. The process ends with the test.
func startReceiver(t *testing.T, language, program, environ string) *receiver {
	t.Helper()
	how := receiverCommands[language]
	file, address := filepath.Join(t.TempDir(), how.file), localtest.FreeAddress(t)
	host, port, _ := net.SplitHostPort(address)
	for _, listen := range []string{"127.0.0.1:9000", `"127.0.0.1", 9000`, "'127.0.0.1', 9000"} {
		own := strings.NewReplacer("127.0.0.1", host, "9000", port).Replace(listen)
		program = strings.ReplaceAll(program, listen, own)
	}
	program = strings.ReplaceAll(program, "listen(9000,", "listen("+port+",")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	command := how.command(file, address)
	if _, err := exec.LookPath(command[0]); err != nil {
		fmt.Fprintf(os.Stderr, "SKIPPED: there is no %s for the receiver in %s\n", command[0], language)
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var output bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = local.Environ(environ), &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run starts a process of its own
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		if cmd.ProcessState == nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	})
	return &receiver{language: language, address: address, cmd: cmd, output: &output}
}

// verifies sends good and bad webhooks.
func (r *receiver) verifies(t *testing.T, secret string) {
	t.Helper()
	body := []byte(`{"data":{"idempotencyKey":"evt_01a223a1-16ae-71b9-b406-b894a64819d7","orderId":"café"}}`)
	signed := signature(secret, body)
	r.await(t)
	for _, c := range []struct {
		what, signature string
		body            []byte
		verified        bool
	}{
		{"a signed body", signed, body, true},
		{"the same again", signed, body, true},
		{"a changed body", signed, bytes.Replace(body, []byte("café"), []byte("cafe"), 1), false},
		{"another signature", base64.StdEncoding.EncodeToString(make([]byte, 32)), body, false},
		{"a short signature", "YQ==", body, false},
		{"no signature", "", body, false},
	} {
		switch status := r.post(t, c.body, c.signature); {
		case c.verified && status/100 != 2, !c.verified && status != http.StatusUnauthorized:
			t.Errorf("%s: %d", c.what, status)
		}
	}
}

// refusesToRun checks that the program ends with an error that names the variable. PHP starts a
// program for each request: it answers 500 to what is signed with the empty key.
func (r *receiver) refusesToRun(t *testing.T) {
	t.Helper()
	if r.language == "php" {
		r.await(t)
		body := []byte(`{"data":{"idempotencyKey":"evt_1"}}`)
		if status := r.post(t, body, signature("", body)); status != http.StatusInternalServerError {
			t.Errorf("the receiver answers %d", status)
		}
		return
	}
	var ended *exec.ExitError
	if err := r.cmd.Wait(); !errors.As(err, &ended) || !ended.Exited() {
		t.Errorf("the receiver ends with %v", err)
	}
	if !strings.Contains(r.output.String(), "WEBHOOK_SECRET is empty") {
		t.Errorf("the receiver prints %q", r.output.String())
	}
}

// signature returns the x-svc-signature of a body.
func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// post sends a webhook, and returns the status of the answer. An empty signature is not sent.
func (r *receiver) post(t *testing.T, body []byte, signature string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if signature != "" {
		req.Header.Set("X-Svc-Signature", signature)
	}
	req.Close = true
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.output.String())
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// await waits until the receiver listens.
func (r *receiver) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the receiver does not listen: %v\n%s", err, r.output.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// An engineer sends a request from the API reference. The browser reports no error.
func TestReferenceInABrowser(t *testing.T) {
	browser := webtest.Start(t)
	d := newDevFolder(t)
	_, info := d.start()
	b := browser.Tab(t, info.BaseURL)
	b.Open("/docs/reference")
	b.Sees("Partner Billing and Checkout")
	b.Do("go to an operation", chromedp.Navigate(info.BaseURL+"/docs/reference#tag/tokens/GET/.well-known/jwks.json"))
	const send = `//button[contains(., "Send get request")]`
	b.ClickUntil(`//button[contains(., "Test Request") and contains(., "jwks.json")]`, send)
	b.ClickUntil(send, `//*[normalize-space(.)="200 OK"]`)
	for _, reported := range b.BrowserErrors() {
		t.Errorf("the browser reports: %s", reported)
	}
}
