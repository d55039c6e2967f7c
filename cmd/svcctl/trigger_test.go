package main

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// An interruption while trigger waits for the event is an interruption, not a missing event.
func TestTriggerIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
	defer interrupt()
	server := newAPI(t, map[string]http.HandlerFunc{
		"POST /checkout/site/payment-intent":         answer(`{"paymentIntentId":"pi_1","qrCode":"x"}`),
		"POST /sandbox/payment-intents/pi_1/payment": answer(`{}`),
		"GET /checkout/site/payment-intent/pi_1":     answer(`{"state":"final","transactionStatus":"Settled"}`),
		"GET /traces/0": func(w http.ResponseWriter, r *http.Request) {
			answer(`{"traceId":"0","events":[]}`)(w, r)
			interrupt()
		},
	})
	r := svcctl(ctx, server.URL, "trigger", "payment")
	if r.code != exitInterrupted || r.errOut != "" {
		t.Errorf("%+v", r)
	}
	r = svcctl(t.Context(), server.URL, "trigger", "payment", "--wait", "1ns")
	if r.code != exitIncomplete {
		t.Errorf("without an event: %+v", r)
	}
}
