package api_test

import (
	compare "cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

// objectKind is a kind of object that a call can name.
type objectKind string

const (
	ofCustomer objectKind = "customer"
	ofInvitee  objectKind = "invitee"
	ofBatch    objectKind = "batch"
	ofIntent   objectKind = "intent"
	ofOrder    objectKind = "order"
	ofKey      objectKind = "Idempotency-Key"
	ofEvent    objectKind = "event"
	ofPosition objectKind = "position in a stream"
	ofTrace    objectKind = "trace"
	ofSite     objectKind = "Site"
)

// organisationWide are the kinds whose objects all Sites of an organisation share.
var organisationWide = []objectKind{ofEvent, ofPosition, ofTrace, ofSite}

// cursorOf is the kind of a list's pagination links.
func cursorOf(list string) objectKind { return objectKind("cursor of " + list) }

// missingObjects are objects that exist nowhere.
var missingObjects = map[objectKind]string{
	ofCustomer: "missing", ofInvitee: "missing", ofBatch: "missing", ofOrder: "missing", ofKey: "missing",
	ofIntent:   "pi_01932c07-0000-7000-8000-00000000dead",
	ofEvent:    "evt_01932c07-0000-7000-8000-00000000dead",
	ofPosition: "evt_01932c07-0000-7000-8000-00000000dead:1",
	ofTrace:    strings.Repeat("d", 32), ofSite: "site_01932c07-0000-7000-8000-00000000dead",
}

// objectCall is a call that names an object: as {X} in the path, the body or a header.
type objectCall struct {
	kind         objectKind
	method, path string // {site} is the caller's Site
	body         string
	header       string // its name; its value is the object
}

// Paths of the matrix.
const (
	customersPath = "/billing/sites/{site}/customers"
	batchesPath   = "/billing/sites/{site}/batches"
	intentsPath   = "/checkout/{site}/payment-intent"
	oneRow        = `"rows":[{"customerReference":"c","rowReference":"r","amount":1}]}`
)

// objectCalls are the calls of each operation that can name an object.
var objectCalls = map[string][]objectCall{
	"listCustomers": {cursorCall("customers")},
	"createInvitation": {
		{ofCustomer, "POST", customersPath + "/invitations", `{"customerReference":"{X}"}`, ""},
		{ofKey, "POST", customersPath + "/invitations", `{"customerReference":"{X} key"}`, "Idempotency-Key"},
	},
	"getCustomer":      {{ofCustomer, "GET", customersPath + "/{X}", "", ""}},
	"resendInvitation": {{ofInvitee, "POST", customersPath + "/{X}/invitation-link", "", ""}},
	"revokeCustomer":   {{ofCustomer, "POST", customersPath + "/{X}/revocation", "", ""}},

	"listBatches": {cursorCall("batches")},
	"validateBatch": {
		{ofCustomer, "POST", batchesPath + "/validation", `{"batchReference":"new",` +
			strings.Replace(oneRow, `"c"`, `"{X}"`, 1), ""},
		{ofBatch, "POST", batchesPath + "/validation", `{"batchReference":"{X}",` + oneRow, ""},
	},
	"getBatch": {
		{ofBatch, "GET", batchesPath + "/{X}", "", ""}, {ofBatch, "GET", batchesPath + "/{X}", "", "Prefer: wait=1"},
	},
	"getBatchRows": {{ofBatch, "GET", batchesPath + "/{X}/rows", "", ""}},
	"cancelBatch":  {{ofBatch, "POST", batchesPath + "/{X}/cancellation", "", ""}},
	"retryBatch":   {{ofBatch, "POST", batchesPath + "/{X}/retry", `{"batchReference":"retry"}`, ""}},
	"submitBatch":  {{ofBatch, "POST", batchesPath, `{"batchReference":"{X}",` + oneRow, ""}},

	"listMovements": {cursorCall("movements")},
	"getTrace":      {{ofTrace, "GET", "/traces/{X}", "", ""}},

	"getSiteWebhookEndpoint": {{ofSite, "GET", "/webhooks/endpoints/{X}", "", ""}},
	"putSiteWebhookEndpoint": {
		{ofSite, "PUT", "/webhooks/endpoints/{X}", `{"url":"https://partner.example/"}`, ""},
	},
	"deleteSiteWebhookEndpoint": {{ofSite, "DELETE", "/webhooks/endpoints/{X}", "", ""}},
	"testSiteWebhookEndpoint":   {{ofSite, "POST", "/webhooks/endpoints/{X}/test", "", ""}},
	"listWebhookEvents": {
		cursorCall("events"), {ofSite, "GET", "/webhooks/events?siteId={X}", "", ""},
		{ofIntent, "GET", "/webhooks/events?siteId={site}&paymentIntentId={X}", "", ""},
	},
	"getWebhookEvent":       {{ofEvent, "GET", "/webhooks/events/{X}", "", ""}},
	"redeliverWebhookEvent": {{ofEvent, "POST", "/webhooks/events/{X}/redelivery", "", ""}},
	"redeliverWebhookEvents": {
		{ofSite, "POST", "/webhooks/events/redelivery", `{"siteId":"{X}"}`, ""},
		{ofIntent, "POST", "/webhooks/events/redelivery", `{"siteId":"{site}","paymentIntentId":"{X}"}`, ""},
	},
	"listenToWebhooks": {{ofPosition, "HEAD", "/webhooks/listen", "", "Last-Event-ID"}},

	"listPaymentIntents": {cursorCall("intents"), {ofOrder, "GET", intentsPath + "?orderId={X}", "", ""}},
	"createPaymentIntent": {
		{ofKey, "POST", intentsPath, `{"amount":5,"qrCodeFormat":"text"}`, "Idempotency-Key"},
	},
	"getPaymentIntent": {
		{ofIntent, "GET", intentsPath + "/{X}", "", ""}, {ofIntent, "GET", intentsPath + "/{X}", "", "Prefer: wait=1"},
	},
	"cancelPaymentIntent": {{ofIntent, "POST", intentsPath + "/{X}/cancellation", "", ""}},

	"signUpInSandbox": {{ofInvitee, "POST", "/sandbox/sites/{site}/customers/{X}/signup", "", ""}},
	"payInSandbox":    {{ofForeignIntent, "POST", "/sandbox/payment-intents/{X}/payment", "", ""}},
}

// ofForeignIntent is an intent in a path without a Site, where all Sites of the organisation count.
const ofForeignIntent objectKind = "intent of any Site"

func cursorCall(list string) objectCall {
	return objectCall{cursorOf(list), "GET", listPaths[list] + "?cursor={X}", "", ""}
}

var listPaths = map[string]string{
	"customers": customersPath, "batches": batchesPath, "movements": "/billing/sites/{site}/movements",
	"intents": intentsPath, "events": "/webhooks/events",
}

// nameNoObject are the other operations: public ones, those of the caller's whole organisation, and
// those of the customer app, which serves all organisations.
var nameNoObject = []string{
	"showStart", "getLiveness", "getReadiness", "getMetrics", "getDescription", "getDocumentation", "getReference",
	"getGuide", "getDocumentationAsset", "issueToken", "getJWKS", "getAuthorizationServerMetadata",
	"listWebhookEndpoints", "getDefaultWebhookEndpoint", "putDefaultWebhookEndpoint", "deleteDefaultWebhookEndpoint",
	"testDefaultWebhookEndpoint", "rotateWebhookSecret", "readClock", "moveClock", "listRequests",
	"getPayableIntent", "payIntent", "getSignup", "completeSignup", "revokeLink",
	"showSignup", "actOnSignup", "showPayment", "actOnPayment",
}

// describedOperations returns the operations of the description that the server serves.
func describedOperations(t *testing.T, c *apitest.Client) (ids []string) {
	t.Helper()
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	check(t, json.Unmarshal(c.Get("/openapi.json").Expect(200).Body, &description))
	for _, methods := range description.Paths {
		for method, raw := range methods {
			var operation struct{ OperationID string }
			if slices.Contains([]string{"get", "put", "post", "delete"}, method) {
				check(t, json.Unmarshal(raw, &operation))
				ids = append(ids, operation.OperationID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// objects makes an object of every kind in a Site, and returns their names.
func (b *batching) objects(t *testing.T, c *apitest.Client, site models.SiteID, name string) map[objectKind]string {
	t.Helper()
	path := func(format string, args ...any) string {
		return strings.ReplaceAll(fmt.Sprintf(format, args...), "{site}", site.String())
	}
	names := map[objectKind]string{
		ofCustomer: name, ofInvitee: name + "-invited", ofBatch: name, ofOrder: name, ofKey: name,
		ofSite: site.String(),
	}
	for _, customer := range []string{name, name + "-second", name + "-invited"} {
		c.With("Idempotency-Key", customer).Post(path("/billing/sites/{site}/customers/invitations"),
			map[string]any{"customerReference": customer}).Expect(201)
		if customer != names[ofInvitee] {
			c.Post(path("/sandbox/sites/{site}/customers/%s/signup", url.PathEscape(customer)), nil).Expect(200)
		}
	}
	for _, batch := range []string{name, name + "-second"} {
		a := c.Post(path("/billing/sites/{site}/batches"), bodyOf(batch, name, name+"-second")).Expect(202)
		names[ofTrace] = a.TraceID()
		b.finish(t, b.claim(t), outcomes(models.OutcomeSucceeded, models.OutcomeSucceeded)...)
	}
	for _, key := range []string{name, name + "-second"} {
		made := dataOf[createdIntent](c.With("Idempotency-Key", key).Post(path("/checkout/{site}/payment-intent"),
			map[string]any{"amount": 5, "orderId": name, "qrCodeFormat": "text"}).Expect(201))
		c.Post(path("/checkout/{site}/payment-intent/%s/cancellation", made.PaymentIntentID), nil).Expect(200)
		names[ofIntent], names[ofForeignIntent] = made.PaymentIntentID, made.PaymentIntentID
	}
	type page struct {
		NextHref string
		Items    []struct{ IdempotencyKey string }
	}
	for list, template := range listPaths {
		var got page
		check(t, json.Unmarshal(fieldOf(t, c.Get(path("%s?limit=1", template)).Expect(200), "data"), &got))
		_, names[cursorOf(list)], _ = strings.Cut(got.NextHref, "cursor=")
		if names[cursorOf(list)] == "" {
			t.Fatalf("%s has one page: %+v", list, got)
		}
		if list == "events" {
			names[ofEvent], names[ofPosition] = got.Items[0].IdempotencyKey, got.Items[0].IdempotencyKey+":1"
		}
	}
	return names
}

// fieldOf returns a field of an answer.
func fieldOf(t *testing.T, a *apitest.Answer, name string) json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	check(t, json.Unmarshal(a.Body, &fields))
	return fields[name]
}

// fresh matches what differs between the answers to two successful creations.
var fresh = regexp.MustCompile(`"(signupUrl|qrCode|paymentIntentId|traceId)":"[^"]*"|\b\d{13}\b|` +
	`/payment-intent/pi_[0-9a-f-]+`)

// outcome returns what a caller can see of an answer: without its time and ids, and with the object
// that the call names as {X}.
func outcome(a *apitest.Answer, object string) string {
	h := maps.Clone(a.Header)
	delete(h, "Date")
	var b strings.Builder
	fmt.Fprintln(&b, a.Status)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(h[name], ", "))
	}
	b.Write(a.Body)
	text := fresh.ReplaceAllString(b.String(), "${1}=NEW")
	for _, form := range []string{object, url.PathEscape(object)} {
		text = strings.ReplaceAll(text, form, "{X}")
	}
	return regexp.MustCompile(`Content-Length: \d+`).ReplaceAllString(text, "Content-Length: N")
}

// send makes the call about an object at a caller's Site.
func (o objectCall) send(c *apitest.Client, site models.SiteID, object string) *apitest.Answer {
	path, _, _ := strings.Cut(o.path, "?")
	path = strings.ReplaceAll(path, "{X}", url.PathEscape(object)) + o.path[len(path):]
	if !strings.HasPrefix(string(o.kind), "cursor") { // which is encoded
		path = strings.ReplaceAll(path, "{X}", url.QueryEscape(object))
	}
	fill := strings.NewReplacer("{site}", site.String(), "{X}", object)
	if name, value, ok := strings.Cut(o.header, ": "); ok {
		c = c.With(name, value)
	} else if o.header != "" {
		c = c.With(o.header, object)
	}
	var body any
	if o.body != "" {
		body = fill.Replace(o.body)
	}
	return c.Send(o.method, fill.Replace(path), body)
}

// An object of another organisation, or of another Site, is answered exactly like one that does not
// exist: by every operation of the description that can name an object.
func TestForeignObjectsLookMissing(t *testing.T) {
	t.Parallel()
	b := newBatching(t)
	described := describedOperations(t, b.Client)
	known := slices.Concat(slices.Collect(maps.Keys(objectCalls)), nameNoObject)
	slices.Sort(known)
	if diff := cmp.Diff(described, known); diff != "" {
		t.Fatalf("operations of the description (-), and of this matrix (+):\n%s", diff)
	}
	owners := map[string]map[objectKind]string{
		"another organisation": b.objects(t, b.other, b.otherSite, "hill"),
		"another Site":         b.objects(t, b.Client, b.sister, "quay"),
	}
	missing := maps.Clone(missingObjects)
	missing[ofForeignIntent] = missing[ofIntent]
	pairs := 0
	operations := slices.SortedFunc(maps.Keys(objectCalls), func(a, b string) int {
		creates := func(operation string) int { // what is created is not missing any more
			return compare.Or(strings.Index(operation, "create")+1, strings.Index(operation, "submit")+1)
		}
		return compare.Or(compare.Compare(creates(a), creates(b)), compare.Compare(a, b))
	})
	for _, operation := range operations {
		for i, call := range objectCalls[operation] {
			for owner, objects := range owners {
				wide := slices.Contains(organisationWide, call.kind) || call.kind == ofForeignIntent ||
					call.kind == cursorOf("events")
				if wide && owner == "another Site" {
					continue // the caller's organisation owns it
				}
				pairs++
				nothing, object := missing[call.kind], objects[call.kind]
				if strings.HasPrefix(string(call.kind), "cursor") {
					nothing = strings.Repeat("A", len(object))
				}
				if call.method == http.MethodPost && nothing == "missing" { // a creation succeeds once
					nothing = fmt.Sprintf("missing-%d-%d", i, pairs)
				}
				want := outcome(call.send(b.Client.For(t), b.site, nothing), nothing)
				got := outcome(call.send(b.Client.For(t), b.site, object), object)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s %d: the %s of %s (+) is not answered like a missing one (-):\n%s", operation, i,
						call.kind, owner, diff)
				}
			}
		}
	}
	t.Logf("%d operations, of which %d name objects; %d pairs of answers compared", len(described), len(objectCalls),
		pairs)
	b.keepsObjects(t, owners)
}

// keepsObjects checks that the calls have changed no object of others.
func (b *batching) keepsObjects(t *testing.T, owners map[string]map[objectKind]string) {
	t.Helper()
	for owner, site := range map[string]models.SiteID{"another organisation": b.otherSite, "another Site": b.sister} {
		c := b.Client
		if site == b.otherSite {
			c = b.other
		}
		names := owners[owner]
		for path, state := range map[string]string{
			"/customers/" + names[ofCustomer]:                      "linked",
			"/customers/" + url.PathEscape(names[ofInvitee]):       "invited",
			"/batches/" + names[ofBatch]:                           "settled",
			"/batches/" + url.PathEscape(names[ofBatch]+"-second"): "settled",
		} {
			a := c.Get("/billing/sites/" + site.String() + path).Expect(200)
			if got := dataOf[map[string]any](a)["state"]; got != state {
				t.Errorf("%s: %s is %v", owner, path, got)
			}
		}
	}
}
