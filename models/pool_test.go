package models_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"partnerbilling/deploy/local"
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// openConfig opens a store that is closed with the test.
func openConfig(t *testing.T, cfg models.Config) *models.Store {
	t.Helper()
	store, err := models.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// warm opens n connections of the pool.
func warm(t *testing.T, store *models.Store, n int) {
	t.Helper()
	for range n {
		conn, err := store.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}

// withoutServer are the methods that refuse the arguments of the test below before they ask the
// server.
var withoutServer = []string{
	"CompleteSignup", "CreateClient", "FinishTransaction", "ListBatches", "ListLinks", "ListPaymentIntents", "OpenSandboxAccount",
	"SetSandboxFault", "Signup", "TailWebhooks", "Trace",
}

// A server that accepts connections and never answers costs each call a bounded time, even without
// a caller's deadline and with many waiting calls. Once a server answers, the next call succeeds,
// although all pooled connections are open and silent.
func TestEveryCallEndsOnFrozenConnections(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	store := openConfig(t, models.Config{DSN: dsn, MaxConns: 4, StatementTimeout: 500 * time.Millisecond})
	warm(t, store, 4)
	line.Freeze()
	began := time.Now()
	type result struct {
		method string
		err    error
	}
	results := make(chan result)
	calls := 0
	value := reflect.ValueOf(store)
	for i := range value.NumMethod() {
		method := value.Type().Method(i)
		if method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		calls++
		go func() { results <- result{method.Name, callWithoutDeadline(value.Method(i))} }()
	}
	if calls < 50 {
		t.Fatalf("found %d methods", calls)
	}
	limit := time.After(25 * time.Second)
	for range calls {
		select {
		case r := <-results:
			if !slices.Contains(withoutServer, r.method) && !errors.Is(r.err, models.ErrUnavailable) {
				t.Errorf("%s: %v", r.method, r.err)
			}
		case <-limit:
			t.Fatal("a call does not end")
		}
	}
	t.Logf("%d calls ended after %s", calls, time.Since(began))
	line.Thaw()
	awaitPing(t, store, 2*time.Second)
}

// callWithoutDeadline calls a method with a context without a deadline and with nonzero arguments.
func callWithoutDeadline(method reflect.Value) (err error) {
	defer models.CatchPanic(&err)
	in := []reflect.Value{reflect.ValueOf(context.Background())}
	count := method.Type().NumIn()
	for i := 1; i < count; i++ {
		in = append(in, filled(method.Type().In(i), 3))
	}
	var out []reflect.Value
	if method.Type().IsVariadic() {
		out = method.CallSlice(in)
	} else {
		out = method.Call(in)
	}
	err, _ = out[len(out)-1].Interface().(error)
	return err
}

// filled returns a nonzero value, as far as depth allows.
func filled(typ reflect.Type, depth int) reflect.Value {
	v := reflect.New(typ).Elem()
	if depth == 0 {
		return v
	}
	switch typ.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.Append(v, filled(typ.Elem(), depth-1)))
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(filled(typ.Elem(), depth-1))
	case reflect.Struct:
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() {
				v.Field(i).Set(filled(typ.Field(i).Type, depth-1))
			}
		}
	default: // stays empty
	}
	return v
}

func awaitPing(t *testing.T, store *models.Store, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		err := store.Ping(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("still not after %s: %v", within, err)
		}
	}
}

// A statement on a recently used, unchecked connection ends by its own deadline.
func TestStatementOnFrozenConnection(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	store := openConfig(t, models.Config{DSN: dsn, MaxConns: 1, StatementTimeout: 500 * time.Millisecond})
	conn, err := store.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line.Freeze()
	began := time.Now()
	_, err = conn.ExecContext(context.Background(), "SELECT 1")
	if took := time.Since(began); err == nil || took > 10*time.Second {
		t.Errorf("%v after %s", err, took)
	}
}

// The client's deadline covers a silent server only. The server itself ends a slow statement, and
// its connection stays.
func TestSlowStatementKeepsItsConnection(t *testing.T) {
	t.Parallel()
	store := openConfig(t, models.Config{DSN: modelstest.DSN(t), MaxConns: 1, StatementTimeout: 100 * time.Millisecond})
	before := backend(t, store)
	_, err := store.DB().ExecContext(t.Context(), "SELECT pg_sleep(60)")
	if err == nil || !strings.Contains(err.Error(), "57014") {
		t.Fatal(err)
	}
	if after := backend(t, store); after != before {
		t.Errorf("connection %d was replaced by %d", before, after)
	}
}

func backend(t *testing.T, store *models.Store) (pid int) {
	t.Helper()
	if err := store.DB().QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// Connections are replaced at a maximum age.
func TestConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	store := openConfig(t, models.Config{DSN: modelstest.DSN(t), MaxConns: 1, MaxConnAge: 50 * time.Millisecond})
	first := backend(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for backend(t, store) == first {
		if ctx.Err() != nil {
			t.Fatal("the connection is never replaced")
		}
	}
}

// privateServer starts a server for one test, and returns its URL and an administrator's session.
func privateServer(t *testing.T) (dsn string, admin *pgx.Conn) {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutRedis: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Stop(context.Background()) })
	admin, err = pgx.Connect(t.Context(), servers.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	return servers.DatabaseURL, admin
}

// setSystem changes a setting of the server for all sessions, and waits until it applies.
func setSystem(t *testing.T, admin *pgx.Conn, setting, value string) {
	t.Helper()
	for _, statement := range []string{fmt.Sprintf("ALTER SYSTEM SET %s = %s", setting, value),
		"SELECT pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for got := ""; got != value; {
		if err := admin.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that becomes read-only is unavailable: a write on an open connection drops it, new
// connections are refused, and Ping fails.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	dsn, admin := privateServer(t)
	store := openConfig(t, models.Config{DSN: dsn, MaxConns: 1})
	if _, err := migrations.Up(t.Context(), store.DB()); err != nil {
		t.Fatal(err)
	}
	before := backend(t, store)
	setSystem(t, admin, "default_transaction_read_only", "on")
	for range 2 { // on the living connection, then on a new one
		if _, err := store.CreateOrganisation(t.Context(), "Harbour Power"); !errors.Is(err, models.ErrUnavailable) {
			t.Fatalf("a write: %v", err)
		}
	}
	if err := store.Ping(t.Context()); !errors.Is(err, models.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	setSystem(t, admin, "default_transaction_read_only", "off")
	if after := backend(t, store); after == before {
		t.Error("the connection was kept")
	}
	if err := store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// hosts returns a URL with several servers.
func hosts(t *testing.T, dsn string, before ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = strings.Join(append(before, u.Host), ",")
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

// A first host that never answers delays only the first call, by one attempt. A caller with a
// shorter deadline still saves the next call that delay.
func TestHostThatNeverAnswers(t *testing.T) {
	t.Parallel()
	dsn := modelstest.DSN(t)
	silent, _ := modelstest.Wire(t, dsn)
	silent.Freeze()
	store := openConfig(t, models.Config{DSN: hosts(t, dsn, silent.Address()), MaxConns: 8})
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := store.Ping(hasty); err == nil {
		t.Error("a caller without time got past a host that never answers")
	}
	awaitPing(t, store, 20*time.Second)
	quick, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for range 8 {
		conn, err := store.DB().Conn(quick)
		if err != nil {
			t.Fatalf("a host that never answers is asked again: %v", err)
		}
		defer conn.Close()
	}
}

// The pool uses the host that accepts writes, at any position in the URL, and the new primary after
// a promotion.
func TestHostThatTakesWrites(t *testing.T) {
	t.Parallel()
	first, firstAdmin := privateServer(t)
	second, secondAdmin := privateServer(t)
	if _, err := secondAdmin.Exec(t.Context(), "ALTER ROLE CURRENT_USER PASSWORD '"+password(t, first)+"'"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(second)
	if err != nil {
		t.Fatal(err)
	}
	store := openConfig(t, models.Config{DSN: hosts(t, first, u.Host), MaxConns: 2})
	port := func() (port string) {
		t.Helper()
		if err := store.DB().QueryRowContext(t.Context(), "SELECT current_setting('port')").Scan(&port); err != nil {
			t.Fatal(err)
		}
		return port
	}
	setSystem(t, secondAdmin, "default_transaction_read_only", "on")
	if got := port(); !strings.Contains(first, ":"+got+"/") {
		t.Errorf("connected to %s", got)
	}
	setSystem(t, firstAdmin, "default_transaction_read_only", "on")
	setSystem(t, secondAdmin, "default_transaction_read_only", "off")
	awaitPing(t, store, 10*time.Second)
	if got := port(); got != u.Port() {
		t.Errorf("after the promotion connected to %s", got)
	}
}

func password(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	return secret
}
