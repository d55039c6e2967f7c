package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// setMemory sets the maxmemory of Redis, in bytes; "0" means no limit.
func (f *fleet) setMemory(ctx context.Context, bytes string) error {
	options, err := redis.ParseURL(f.redis.RedisURL)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	return errors.Join(client.ConfigSet(ctx, "maxmemory", bytes).Err(), client.Close())
}

// get sends a GET with an Authorization header to a process of the fleet. It ignores the response
// and any error.
func (f *fleet) get(ctx context.Context, process, path, authorization string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.addresses[process]+path, nil)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", authorization)
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
	}
}

// breakReceiver makes the partner's webhook endpoint answer with an HTTP status until end is
// called.
func (f *fleet) breakReceiver(status int64) end {
	f.answer.Store(status)
	return func(context.Context) error {
		f.answer.Store(http.StatusNoContent)
		return nil
	}
}

// launchWorkers starts both workers.
func (f *fleet) launchWorkers(context.Context) error {
	return errors.Join(f.launch("worker-1"), f.launch("worker-2"))
}

// moveClock advances service time, as a request to the sandbox's clock does.
func (f *fleet) moveClock(ctx context.Context, by time.Duration) error {
	return f.sql(ctx, fmt.Sprintf("UPDATE service_clock SET offset_ms = offset_ms + %d", by.Milliseconds()))
}

// plantDebit gives the sandbox rail a debit that the ledger lacks: a copy of its latest successful
// debit under a new key.
func (f *fleet) plantDebit(ctx context.Context) error {
	key := make([]byte, 32)
	rand.Read(key)
	return f.sql(ctx, fmt.Sprintf(`
DO $$ BEGIN
    INSERT INTO sandbox_debits
    SELECT (jsonb_populate_record(d, jsonb_build_object('key', 'r1_%x', 'changed_at', svc_now()))).*
    FROM sandbox_debits d WHERE status = 'succeeded' ORDER BY changed_at DESC LIMIT 1;
    IF NOT FOUND THEN RAISE 'the sandbox rail has no successful debit to copy'; END IF;
END $$`, key))
}
