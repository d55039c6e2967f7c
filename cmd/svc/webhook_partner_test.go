package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"partnerbilling/api/client"
)

// webhookPartner is a partner's server. It verifies both signatures of each request, and compares
// the bodies of requests with the same key.
type webhookPartner struct {
	*httptest.Server

	mu       sync.Mutex
	secret   string
	down     bool // answers 500
	receipts map[string]*receipt
	faults   []string

	acknowledged, waiting int
	waitFrom, waitFor     int           // acknowledgements before requests wait; waiting requests until full
	full                  chan struct{} // closed when waitFor requests wait
	opened                chan struct{} // closed when waiting requests may continue
}

// receipt describes the requests with one key.
type receipt struct {
	body                   string
	notification           client.TransactionStatus
	requests, acknowledged int
}

func newWebhookPartner(t *testing.T) *webhookPartner {
	p := &webhookPartner{receipts: map[string]*receipt{}, full: make(chan struct{}), opened: make(chan struct{})}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *webhookPartner) trust(secret string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secret = secret
}

func (p *webhookPartner) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// hold delays requests after n acknowledgements until they are released. It closes full once wanted
// requests wait.
func (p *webhookPartner) hold(n, wanted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitFrom, p.waitFor = n, wanted
}

// awaitFull waits until enough requests wait, and returns a function that releases them. The end of
// the test releases them too.
func (p *webhookPartner) awaitFull(t *testing.T) (open func()) {
	t.Helper()
	open = sync.OnceFunc(func() { close(p.opened) })
	t.Cleanup(open)
	select {
	case <-p.full:
	case <-time.After(awaitTimeout):
		t.Fatal("timed out waiting for requests")
	}
	return open
}

func (p *webhookPartner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	got, wait, down := p.receive(r, body)
	if wait {
		<-p.opened
	}
	if down {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	got.acknowledged++
	p.acknowledged++
}

// receive records a request and decides how to answer it.
func (p *webhookPartner) receive(r *http.Request, body []byte) (got *receipt, wait, down bool) {
	key := r.Header.Get("webhook-id")
	p.mu.Lock()
	defer p.mu.Unlock()
	notification, err := p.verify(r, key, body)
	if err != nil {
		p.faults = append(p.faults, fmt.Sprintf("%s: %v", key, err))
	}
	got, ok := p.receipts[key]
	if !ok {
		got = &receipt{body: string(body), notification: notification}
		p.receipts[key] = got
	}
	if got.body != string(body) {
		p.faults = append(p.faults, fmt.Sprintf("%s: first %s, then %s", key, got.body, body))
	}
	got.requests++
	if wait = p.waitFor > 0 && p.acknowledged >= p.waitFrom; wait {
		if p.waiting++; p.waiting == p.waitFor {
			close(p.full)
		}
	}
	return got, wait, p.down
}

func (p *webhookPartner) verify(r *http.Request, key string, body []byte) (client.TransactionStatus, error) {
	event, err := client.ParseEvent(r.Header, body, p.secret)
	if err != nil {
		return client.TransactionStatus{}, err
	}
	notification := *event.Status
	if r.Header.Get(client.SignatureHeader) != signature(p.secret, body) {
		return notification, client.ErrSignature
	}
	if notification.IdempotencyKey != key {
		return notification, fmt.Errorf("the body has key %s", notification.IdempotencyKey)
	}
	published, err := standardwebhooks.NewWebhook(p.secret)
	if err != nil {
		return notification, err
	}
	return notification, published.Verify(body, r.Header)
}

// about returns the verified notification about a payment intent, if it has arrived.
func (p *webhookPartner) about(intent string) (client.TransactionStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.receipts {
		if r.notification.PaymentIntentID == intent {
			return r.notification, true
		}
	}
	return client.TransactionStatus{}, false
}
