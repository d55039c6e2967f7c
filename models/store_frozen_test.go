package models_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/coalesce"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// openConfig opens a store that is closed with the test.
func openConfig(t *testing.T, cfg postgres.Config) *models.Store {
	t.Helper()
	store, err := models.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
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
// server, or that need no server.
var withoutServer = []string{"PauseQueue", "ResumeQueue",
	"CompleteSignup", "CreateClient", "CreateClientWithSecret", "DebitSubjects",
	"EndAct", "FinishTransaction", "ListBatches",
	"ListLinks", "ListPaymentIntents", "OpenSandboxAccount", "ReadsReplica", "ReplicaState",
	"SetSandboxFault", "Signup", "TailWebhooks", "Trace",
}

// A server that accepts connections and never answers costs each call a bounded time, even without
// a caller's deadline and with many waiting calls. Once a server answers, the next call succeeds,
// although all pooled connections are open and silent.
func TestEveryCallEndsOnFrozenConnections(t *testing.T) {
	t.Parallel()
	line, dsn := modelstest.Wire(t, modelstest.DSN(t))
	store := openConfig(t, postgres.Config{DSN: dsn, MaxConns: 4, StatementTimeout: 500 * time.Millisecond})
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
	defer coalesce.CatchPanic(&err)
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
		if typ == reflect.TypeFor[models.DebitDecision]() {
			v.SetString(string(models.DecidedDebited))
		}
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
