package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api/operator"
	"partnerbilling/api/peer"
)

// TestMain makes hashes cheap: with the race detector, one of the product's takes seconds.
func TestMain(m *testing.M) {
	if product := operator.SetHashCost(6); product != 12 {
		panic(fmt.Sprintf("the product's cost is %d, want 12", product))
	}
	os.Exit(m.Run())
}

const password = "correct horse battery"

// loginTest is a login with two accounts, on a clock that the test advances.
type loginTest struct {
	t       *testing.T
	login   *operator.Login
	metrics *prometheus.Registry
	log     bytes.Buffer
	now     time.Time
}

func newLoginTest(t *testing.T) *loginTest {
	t.Parallel()
	return newBubbleTest(t)
}

// newBubbleTest is newLoginTest for a synctest bubble, whose test cannot be parallel.
func newBubbleTest(t *testing.T) *loginTest {
	t.Helper()
	l := &loginTest{t: t, metrics: prometheus.NewRegistry(), now: time.Now()}
	line, err := operator.Hash("jane", password, operator.RoleAct)
	must(t, err)
	accounts, err := operator.ParseAccounts("# operators\n\n" + line + "\n")
	must(t, err)
	must(t, accounts.AddPassword("john", "another password", operator.RoleLook))
	l.login, err = operator.New(operator.Config{
		Accounts: accounts, Now: func() time.Time { return l.now }, Metrics: l.metrics,
		Proxies: peer.Proxies{}, Log: slog.New(slog.NewTextHandler(&l.log, nil)),
	})
	must(t, err)
	return l
}

// try returns the status of an attempt; 200 for an accepted one.
func (l *loginTest) try(name, password, address string) int {
	l.t.Helper()
	return l.tryWithin(l.t.Context(), name, password, address)
}

func (l *loginTest) tryWithin(ctx context.Context, name, password, address string) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/ops/queues", nil)
	r.RemoteAddr = address + ":4711"
	if name != "" {
		r.SetBasicAuth(name, password)
	}
	w := httptest.NewRecorder()
	if _, ok := l.login.Admit(w, r); ok {
		return http.StatusOK
	}
	return w.Code
}

func (l *loginTest) expect(want int, name, password, address string) {
	l.t.Helper()
	if got := l.try(name, password, address); got != want {
		l.t.Errorf("%s from %s: %d, want %d", name, address, got, want)
	}
}

func (l *loginTest) counts(accepted, refused, throttled, busy int) {
	l.t.Helper()
	families, err := l.metrics.Gather()
	must(l.t, err)
	got := map[string]int{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
	}
	want := map[string]int{"accepted": accepted, "refused": refused, "throttled": throttled, "busy": busy}
	if families[0].GetName() != "svc_operator_logins_total" || !maps.Equal(got, want) {
		l.t.Errorf("%s: %v, want %v", families[0].GetName(), got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLogin(t *testing.T) {
	l := newLoginTest(t)
	l.counts(0, 0, 0, 0)
	l.expect(http.StatusUnauthorized, "", "", "192.0.2.1")
	l.counts(0, 0, 0, 0) // a browser asks without credentials first
	l.expect(http.StatusOK, "jane", password, "192.0.2.1")
	l.expect(http.StatusOK, "john", "another password", "192.0.2.1")
	l.expect(http.StatusUnauthorized, "jane", "another password", "192.0.2.1")
	l.expect(http.StatusUnauthorized, "jane", "", "192.0.2.1")
	l.expect(http.StatusUnauthorized, "jane"+password, "", "192.0.2.1")
	l.expect(http.StatusUnauthorized, "ja", "ne"+password, "192.0.2.1")
	l.counts(2, 4, 0, 0)
	if log := l.log.String(); strings.Contains(log, password) || strings.Count(log, "level=WARN") != 4 ||
		!strings.Contains(log, "outcome=accepted operator=jane address=192.0.2.1") {
		t.Errorf("log:\n%s", log)
	}
}

// Accepted credentials are remembered for a minute, and only these.
func TestLoginIsRemembered(t *testing.T) {
	l := newLoginTest(t)
	l.expect(http.StatusOK, "jane", password, "192.0.2.1")
	for range 50 { // asynqmon polls
		l.now = l.now.Add(time.Second)
		l.expect(http.StatusOK, "jane", password, "192.0.2.1")
	}
	l.counts(1, 0, 0, 0)
	l.expect(http.StatusUnauthorized, "jane", "guess", "192.0.2.1")
	l.now = l.now.Add(10 * time.Second)
	l.expect(http.StatusOK, "jane", password, "192.0.2.1")
	l.counts(2, 1, 0, 0)
}

// A page that sends its requests at once makes one attempt.
func TestConcurrentRequestsAreOneAttempt(t *testing.T) {
	l := newLoginTest(t)
	codes := make([]int, 30)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() { codes[i] = l.tryWithin(context.Background(), "jane", password, "192.0.2.1") })
	}
	wg.Wait()
	if slices.ContainsFunc(codes, func(code int) bool { return code != http.StatusOK }) {
		t.Errorf("codes %v", codes)
	}
}

// Guesses are slowed down, by address and by name. They do not lock the operator out.
func TestGuessesAreThrottled(t *testing.T) {
	l := newLoginTest(t)
	guess := func(address string, n int) (throttled int) {
		for i := range n {
			if l.try("jane", fmt.Sprint("guess ", i), address) == http.StatusTooManyRequests {
				throttled++
			}
		}
		return throttled
	}
	if got := guess("198.51.100.1", 15); got != 5 {
		t.Errorf("%d of 15 guesses from one address were throttled", got)
	}
	if got := guess("198.51.100.2", 15); got != 5 {
		t.Errorf("%d of 15 guesses from another address were throttled", got)
	}
	if got := guess("198.51.100.3", 5); got != 4 {
		t.Errorf("%d of 5 guesses at a name that was guessed enough were throttled", got)
	}
	l.expect(http.StatusOK, "jane", password, "192.0.2.1")
	// The address has used its attempts.
	l.expect(http.StatusTooManyRequests, "john", "another password", "198.51.100.1")
	l.now = l.now.Add(6 * time.Second)
	l.expect(http.StatusOK, "john", "another password", "198.51.100.1")
	l.counts(2, 21, 15, 0)
}

// An unknown name costs as much as a known one.
func TestUnknownNamesTakeAsLong(t *testing.T) {
	l := newLoginTest(t)
	took := func(name string) time.Duration {
		began := time.Now()
		l.expect(http.StatusUnauthorized, name, "guess", "192.0.2.1")
		return time.Since(began)
	}
	known, unknown := took("jane"), took("nobody")
	for range 3 { // other programs may slow one measurement down
		known, unknown = min(known, took("jane")), min(unknown, took("nobody"))
	}
	if unknown < known/4 || known < unknown/4 {
		t.Errorf("a known name takes %s, an unknown one %s", known, unknown)
	}
}

// A cancelled request is answered at once. Other requests that wait for the same attempt get its
// outcome.
func TestEndedRequestEndsNoOthersAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newBubbleTest(t)
		free := l.login.OccupyProcessors()
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan int, 1), make(chan int, 1)
		go func() { first <- l.tryWithin(ctx, "jane", password, "192.0.2.1") }()
		synctest.Wait()
		go func() { second <- l.tryWithin(t.Context(), "jane", password, "192.0.2.1") }()
		synctest.Wait()
		leave()
		if got := <-first; got != http.StatusServiceUnavailable {
			t.Errorf("the ended request: %d", got)
		}
		free()
		if got := <-second; got != http.StatusOK {
			t.Errorf("the request that stays: %d", got)
		}
		l.counts(1, 0, 0, 0)
	})
}

// An attempt times out while all processors are busy. It counts as busy, not as a guess.
func TestAttemptHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newBubbleTest(t)
		free := l.login.OccupyProcessors()
		defer free()
		began := time.Now()
		got := l.tryWithin(t.Context(), "jane", password, "192.0.2.1")
		if took := time.Since(began); got != http.StatusTooManyRequests || took != operator.AttemptTimeout {
			t.Errorf("status %d after %v", got, took)
		}
		l.counts(0, 0, 0, 1)
	})
}

// An account has the role of its line, and look without one. An admitted operator has name, role
// and address.
func TestRoles(t *testing.T) {
	l := newLoginTest(t)
	line, err := operator.Hash("jane", password, operator.RoleAct)
	must(t, err)
	for text, want := range map[string]operator.Role{
		line: operator.RoleAct, strings.TrimSuffix(line, ":act") + ":look": operator.RoleLook,
		strings.TrimSuffix(line, ":act"): operator.RoleLook,
	} {
		if accounts, err := operator.ParseAccounts(text); err != nil || accounts["jane"].Role != want {
			t.Errorf("%s: %v, %v", text, accounts["jane"].Role, err)
		}
	}
	for name, tt := range map[string]struct {
		password string
		want     operator.Operator
	}{
		"jane": {password, operator.Operator{Name: "jane", Role: operator.RoleAct, Address: "192.0.2.7"}},
		"john": {"another password", operator.Operator{Name: "john", Role: operator.RoleLook, Address: "192.0.2.7"}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops", nil)
		r.RemoteAddr = "192.0.2.7:4711"
		r.SetBasicAuth(name, tt.password)
		o, ok := l.login.Admit(httptest.NewRecorder(), r)
		if !ok || o != tt.want || o.MayAct() != (name == "jane") {
			t.Errorf("%+v, %v", o, ok)
		}
	}
}

func TestParseAccountsRefuses(t *testing.T) {
	t.Parallel()
	line, err := operator.Hash("jane", password, operator.RoleAct)
	must(t, err)
	cheap := strings.Replace(line, "$06$", "$05$", 1)
	for name, text := range map[string]string{
		"no hash": "jane", "another role": strings.TrimSuffix(line, "act") + "root",
		"no role": strings.TrimSuffix(line, "act"), "plain password": "jane:" + password, "cheap hash": cheap, "repeated": line + "\n" + line,
		"no name": strings.TrimPrefix(line, "jane"), "white space": "ja ne" + strings.TrimPrefix(line, "jane"),
	} {
		if accounts, err := operator.ParseAccounts(text); err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v, %v", name, accounts, err)
		}
	}
	for _, tt := range [][2]string{
		{"jane", strings.Repeat("x", operator.MinPassword-1)}, {"jane", strings.Repeat("x", 73)}, {"", password},
		{"a:b", password}, {strings.Repeat("x", 65), password},
	} {
		if line, err := operator.Hash(tt[0], tt[1], operator.RoleLook); err == nil {
			t.Errorf("%q: %s", tt, line)
		}
	}
	if line, err := operator.Hash("jane", password, "root"); err == nil {
		t.Error(line)
	}
}
