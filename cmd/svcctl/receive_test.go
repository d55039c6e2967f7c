package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
)

// testSecret returns a webhook secret.
func testSecret(seed byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{seed}, 32))
}

// The receiver prints each type of event, accepts both secrets of a rotation, and says why it
// refuses.
func TestReceivePrintsEveryEvent(t *testing.T) {
	t.Parallel()
	current, next := testSecret(1), testSecret(2)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&ctl{out: &out}).receive(ctx, ln, []string{current, next}) }()
	now := time.Now()
	for _, c := range []struct {
		body   string
		header func(body []byte) http.Header
		status int
	}{
		{`{"data":{"idempotencyKey":"evt_1","paymentIntentId":"pi_1","transactionStatus":"Settled","orderId":"o",
			"amountPaid":5}}`, nil, 204},
		{`{"type":"batchSettled","data":{"idempotencyKey":"evt_2","batch":{"batchReference":"b","rowCount":3,
			"counts":{"succeeded":2},"succeededAmount":7}}}`, nil, 204},
		{`{"type":"rowCorrected","data":{"idempotencyKey":"evt_3","batchReference":"b",
			"row":{"rowReference":"r","correctedOutcome":"succeeded"}}}`, nil, 204},
		{`{"type":"customerLinked","data":{"idempotencyKey":"evt_4","customer":{"customerReference":"\u009b2J",
			"state":"linked"}}}`, nil, 204},
		{`{"type":"new","data":{"idempotencyKey":"evt_5"}}`, nil, 204},
		{`{"data":{"paymentIntentId":"pi_2","transactionStatus":"Expired"},"test":true}`, func(b []byte) http.Header {
			return client.SignWebhook("evt", now, b, next)
		}, 204},
		{`{}`, func(b []byte) http.Header { return client.SignWebhook("evt", now, b, testSecret(3)) }, 401},
		{`{}`, func(b []byte) http.Header { return client.SignWebhook("evt", now.Add(-time.Hour), b, current) }, 401},
		{`x`, nil, 400},
	} {
		header := client.SignWebhook("evt", now, []byte(c.body), current)
		if c.header != nil {
			header = c.header([]byte(c.body))
		}
		url := "http://" + ln.Addr().String()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(req.Header, header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.body, resp.StatusCode, c.status)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want := `receiving at http://` + ln.Addr().String() + `
verified: pi_1 is Settled, order "o", paid 5
verified: batchSettled: batch "b", 2 of 3 succeeded, 7
verified: rowCorrected: batch "b", row "r" is succeeded
verified: customerLinked: customer "\u009b2J" is linked
verified: new: evt_5
verified: pi_2 is Expired, order "", paid 0 (test)
REFUSED: not signed by the service
REFUSED: signed too long ago
REFUSED: unreadable
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
}
