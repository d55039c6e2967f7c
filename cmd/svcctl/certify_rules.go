package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"partnerbilling/api/client"
)

// rule is a rule for receivers of webhooks, with the webhooks that test it.
type rule struct {
	name     string
	text     string // what the webhooks are, and what the receiver must do
	advice   string // for a receiver that breaks the rule
	advisory bool   // breaking the rule fails only a strict certification
	// webhooks returns the webhooks to send, in order.
	webhooks func(*certification) []webhook
}

// rules are the rules that svcctl webhooks certify tests, in this order.
var rules = []rule{
	{
		name: "good event", text: "a final status, signed: 2xx within 10 seconds",
		advice: "the receiver must accept this event: check the secret, and verify the body before you parse it",
		webhooks: func(c *certification) []webhook {
			return []webhook{c.signed(c.status())}
		},
	},
	{
		name: "exact bytes", text: "a body with escapes, spaces and other alphabets: 2xx",
		advice: "verify the bytes as they arrived: a body that was parsed and written again has other bytes",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			e.body = bytes.Replace(e.body, []byte(`"orderId":"`), []byte(`"orderId" : "\u003cA&B\/é 東>`), 1)
			return []webhook{c.signed(e)}
		},
	},
	{
		name: "duplicate", text: "the same event three times: 2xx each time",
		advice: "store the idempotencyKey of what you have processed, and answer 2xx to a key that you know",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			var again []webhook
			for attempt := range 3 {
				w := c.signed(e)
				w.header.Set("Svc-Webhook-Attempt", fmt.Sprint(attempt+1))
				again = append(again, w)
			}
			return again
		},
	},
	{
		name: "reordered events", text: "an event, then one that happened before it: 2xx for both",
		advice: "events may arrive in any order: do not refuse one because a later one is known",
		webhooks: func(c *certification) []webhook {
			older, newer := c.statusAt(time.Now().Add(-time.Minute)), c.status()
			return []webhook{c.signed(newer), c.signed(older)}
		},
	},
	{
		name: "wrong signature", text: "an event signed with another secret: 4xx",
		advice: "compute the HMAC of the body with your secret, and answer 401 if it is not the signature",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			return []webhook{c.refused(e, client.SignWebhook(e.key, time.Now(), e.body, newSecret()))}
		},
	},
	{
		name: "no signature", text: "an event without signatures: 4xx",
		advice: "refuse a webhook without a signature: anyone can send it",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			return []webhook{c.refused(e, client.SignWebhook(e.key, time.Now(), e.body))}
		},
	},
	{
		name: "changed body", text: "a body in which one byte was changed after signing: 4xx",
		advice: "the signature must cover every byte of the body",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			header := client.SignWebhook(e.key, time.Now(), e.body, c.secret)
			e.body = bytes.Replace(e.body, []byte(`"amountPaid":1250`), []byte(`"amountPaid":9250`), 1)
			return []webhook{c.refused(e, header)}
		},
	},
	{
		name: "stale signature", text: "an event that was signed an hour ago: 4xx (advice)", advisory: true,
		advice: "x-svc-signature does not cover the time: verify webhook-signature and webhook-timestamp, and refuse " +
			"what is older than five minutes",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			return []webhook{c.refused(e, client.SignWebhook(e.key, time.Now().Add(-time.Hour), e.body, c.secret))}
		},
	},
	{
		name: "removed headers", text: "an event with x-svc-signature alone: 4xx (advice)", advisory: true,
		advice: "an old event can be sent again without webhook-signature, webhook-timestamp and webhook-id: refuse " +
			"what lacks webhook-signature",
		webhooks: func(c *certification) []webhook {
			e := c.status()
			signed := client.SignWebhook(e.key, time.Now().Add(-time.Hour), e.body, c.secret)
			return []webhook{c.refused(e, http.Header{client.SignatureHeader: signed[client.SignatureHeader]})}
		},
	},
	{
		name: "rotation", text: "signatures under two secrets, one of which you know: 2xx",
		advice:   "webhook-signature lists a signature for each secret, separated by spaces: one match is enough",
		webhooks: rotation,
	},
	{
		name: "unknown type", text: "an event of a type that does not exist yet: 2xx",
		advice: "answer 2xx to types that you do not know, because a refused event is sent up to six times",
		webhooks: func(c *certification) []webhook {
			return []webhook{c.signed(c.further("somethingNew", map[string]any{"something": "new"}))}
		},
	},
	{
		name: "further event", text: "a batchSettled event: 2xx",
		advice: "answer 2xx to all types that an endpoint can ask for; svc-event-type names the type",
		webhooks: func(c *certification) []webhook {
			return []webhook{c.signed(c.further(client.EventBatchSettled, map[string]any{"batch": client.BatchStatus{
				BatchReference: "certify", State: client.StateSettled, RowCount: 1, TotalAmount: 1250,
				SubmittedAt: time.Now().UnixMilli(), SettledAt: time.Now().UnixMilli(),
			}}))}
		},
	},
	{
		name: "test event", text: "a test of the endpoint, as svcctl endpoints test sends it: 2xx",
		advice: `answer 2xx to a body with "test": true, and do not act on it`,
		webhooks: func(c *certification) []webhook {
			e := c.status()
			e.body = append(bytes.TrimSuffix(e.body, []byte("}")), `,"test":true}`...)
			w := c.signed(e)
			w.header.Set("Svc-Webhook-Test", "true")
			return []webhook{w}
		},
	},
}

// rotation returns an event as the service sends it during a rotation of the webhook secret: both
// secrets sign webhook-signature, and the old one signs x-svc-signature. If the receiver knows both
// secrets, a second event follows. In it, the next secret signs x-svc-signature.
func rotation(c *certification) []webhook {
	next := c.next
	if next == "" {
		next = newSecret()
	}
	before := c.signed(c.status())
	header := client.SignWebhook(before.header.Get("Webhook-Id"), time.Now(), before.body, next, c.secret)
	header.Set(client.SignatureHeader, before.header.Get(client.SignatureHeader))
	maps.Copy(before.header, header)
	webhooks := []webhook{before}
	if c.next != "" {
		after := c.signed(c.status())
		maps.Copy(after.header,
			client.SignWebhook(after.header.Get("Webhook-Id"), time.Now(), after.body, next, c.secret))
		webhooks = append(webhooks, after)
	}
	return webhooks
}

// newSecret returns a random webhook secret, which no receiver knows.
func newSecret() string {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// sample is an event before it is signed.
type sample struct {
	key, kind string // idempotencyKey and type
	body      []byte
}

// status returns a new event about a payment that has just settled.
func (c *certification) status() sample { return c.statusAt(time.Now()) }

// statusAt returns a new event about a payment that settled at a time. The payment does not exist.
// The fields of the body are in the same order as in the service's own events.
func (c *certification) statusAt(at time.Time) sample {
	key := "evt_" + uuid.NewString()
	body := fmt.Sprintf(`{"data":{"idempotencyKey":%q,"siteId":{"id":"site_%s"},"paymentIntentId":"pi_%s",`+
		`"transactionId":"txn_%s","transactionStatus":"Settled","transactionUpdated":%d,"orderId":"certify-%d",`+
		`"amountPaid":1250},"traceId":%q}`, key, uuid.NewString(), uuid.NewString(), uuid.NewString(), at.UnixMilli(),
		at.UnixNano(), strings.ReplaceAll(uuid.NewString(), "-", ""))
	return sample{key, client.EventTransactionStatus, []byte(body)}
}

// further returns a new event of another type. It adds the common fields to data.
func (*certification) further(kind string, data map[string]any) sample {
	key := "evt_" + uuid.NewString()
	data["idempotencyKey"], data["siteId"] = key, map[string]string{"id": "site_" + uuid.NewString()}
	body, err := json.Marshal(map[string]any{
		"type": kind, "data": data, "traceId": strings.ReplaceAll(uuid.NewString(), "-", ""),
	})
	if err != nil {
		panic(err) // the values above are JSON
	}
	return sample{key, kind, body}
}

// signed returns an event with the signatures and headers of the service. The receiver must accept
// it.
func (c *certification) signed(e sample) webhook {
	return webhook{header: e.header(client.SignWebhook(e.key, time.Now(), e.body, c.secret)), body: e.body}
}

// refused returns an event with the given signature headers. The receiver must refuse it.
func (*certification) refused(e sample, signatures http.Header) webhook {
	return webhook{header: e.header(signatures), body: e.body, mustRefuse: true}
}

// header returns the signature headers with the service's other headers.
func (e sample) header(signatures http.Header) http.Header {
	header := signatures.Clone()
	header.Set("Content-Type", "application/json;charset=UTF-8")
	header.Set("Svc-Event-Type", e.kind)
	header.Set("Svc-Webhook-Attempt", "1")
	return header
}
