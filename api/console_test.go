package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"partnerbilling/api"
	"partnerbilling/models"
)

func TestConsoleSites(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open("/console").expect(200, "the API has no operation that lists them").lacks(c.site.String())
	for _, id := range []string{c.otherSite.String(), models.SiteID(uuid.New()).String(), "site_x", ""} {
		v.submit("/console/sites", "siteId", id).expect(403, "does not belong to the organisation")
	}
	v.open("/console/sites/"+c.otherSite.String()+"/payments").expect(403, "This Site cannot be opened")
	if got := v.submit("/console/sites", "siteId", c.site.String()).expect(303).to(); got != c.page("") {
		t.Errorf("it leads to %q", got)
	}
	v.open(c.page("")).expect(200, "North Quay", c.site.String(), "AUD\u00a00.00")
	v.open("/console").expect(200, c.site.String())
	v.submit("/console/sites/remove", "siteId", c.site.String()).expect(303)
	v.open("/console").expect(200).lacks(c.site.String())
}

func TestConsolePayments(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open(c.page("/payments")).expect(200, "No payment intent matches")
	v.open(c.page("/payments/new")).expect(200)
	for amount, complaint := range map[string]string{
		"0": "amount must be greater than 0", "-1": "amount must be greater than 0", "1.5": "amount must be an integer",
		"":    "amount is required",
		"007": "amount must be an integer", "ten": "amount must be an integer",
	} {
		v.submit(c.page("/payments"), "amount", amount, "orderId", "<b>").expect(400, complaint, `value="<b>"`)
	}
	v.submit(c.page("/payments"), "amount", "5", "items", "tea,1").expect(400, "a line item is a line of")
	v.submit(c.page("/payments"), "amount", "5", "items", "tea,0,5,5").
		expect(400, "lineItems[0].quantity must be at least 1")
	v.submit(c.page("/payments"), "amount", "5", "minutes", "0").expect(400, "expiresAt must be")

	one := v.submit(c.page("/payments"), "amount", "1250", "orderId", "order 7", "items", "flat white, 2, 500, 1250\n",
		"minutes", "30").expect(303).to()
	page := v.open(one).expect(200, "AUD\u00a012.50", "created", "order 7", "flat white", "data:image/png;base64,",
		"21 Sep 2026 14:43:20", `data-poll=`)
	id := page.find(`<code data-copy>(pi_[^<]*)`)
	v.submit(c.page("/payment"), "id", id, "action", "pay", "behaviour", "no").expect(400, "behaviour must be one of")
	v.submit(c.page("/payment"), "id", id, "action", "pay", "behaviour", "pays", "discount", "1251").
		expect(400, "discounts[0].amount")
	v.submit(c.page("/payment"), "id", id, "action", "pay", "behaviour", "pays", "discount", "50").expect(303)
	v.open(one).expect(200, "pending", "the bank is asked").lacks("Play the customer", "data:image/png")
	v.submit(c.page("/payment"), "id", id, "action", "cancel").expect(409, "pending")

	two := v.submit(c.page("/payments"), "amount", "1").expect(303).to()
	id = v.open(two).find(`<code data-copy>(pi_[^<]*)`)
	v.submit(c.page("/payment"), "id", id, "action", "cancel").expect(303)
	v.open(two).expect(200, "Cancelled").lacks("Play the customer")
	v.open(c.page("/payments?status=Cancelled")).expect(200, "AUD\u00a00.01").lacks("AUD\u00a012.50")
	v.open(c.page("/payments?status=pending&orderId=order+7")).expect(200, "AUD\u00a012.50").lacks("AUD\u00a00.01")
	v.open(c.page("/payment?id=pi_x")).expect(404, "The API answered 404")
	for range 26 {
		v.submit(c.page("/payments"), "amount", "77").expect(303)
	}
	next := v.open(c.page("/payments")).expect(200).find(`rel="next" href="([^"]*)"`)
	v.open(next).expect(200, "AUD\u00a012.50", `rel="prev"`).lacks(`rel="next"`)
	v.open(c.page("/payments?cursor=x")).expect(400, "nextHref")
}

func TestConsoleCustomers(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	path := c.page("/customers")
	v.open(path)
	v.submit(path, "customerReference", "").expect(400, "customerReference is required")
	invited := v.submit(path, "customerReference", "ada & <co>").expect(303).to()
	link := v.open(invited).expect(200, "ada & <co>").find(`<code>(https://billing\.example/signup/[^<]*)`)
	v.submit(path, "customerReference", "ada & <co>").expect(409, "customer-reference-active")
	one := c.page("/customer?ref=" + url.QueryEscape("ada & <co>"))
	v.open(one).expect(200, "invited", "Sign up as the customer").lacks("/signup/")
	if to := v.submit(c.page("/customer"), "ref", "ada & <co>", "action", "link").expect(303).to(); to != invited {
		t.Errorf("the link is shown at %s", to)
	}
	v.open(invited).expect(200, link).lacks("Show the sign-up link")
	v.submit(c.page("/customer"), "ref", "ada & <co>", "action", "signup", "behaviour", "insufficientFunds").expect(303)
	v.open(one).expect(200, "linked").lacks("Sign up as the customer")
	v.open(invited).expect(200, "linked").lacks("/signup/")
	v.submit(c.page("/customer"), "ref", "ada & <co>", "action", "revoke").expect(303)
	v.open(one).expect(200, "revoked")
	v.submit(c.page("/customer"), "ref", "ada & <co>", "action", "signup", "behaviour", "pays").expect(410)
	v.submit(path, "customerReference", "bob", "behaviour", "pays").expect(303)
	v.open(path+"?state=linked").expect(200, "1 link matches", "bob").lacks("ada & <co>")
	v.open(path+"?from=2026-09-21&to=2026-09-21").expect(200, "2 links match")
	v.open(path+"?from=2026-09-22").expect(200, "No customer matches")
	v.open(path+"?from=yesterday").expect(400, "invitedFrom must be an integer")
	v.open(path+"?state=no").expect(400, "state must be one of")
}

func TestConsoleBatches(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open(c.page("/customers"))
	v.submit(c.page("/customers"), "customerReference", "ada", "behaviour", "pays").expect(303)
	path := c.page("/batches")
	v.open(path+"/new?fill=linked").expect(200, "ada,row-001,1250")
	rows := "Amount;note;rowReference;CustomerReference\r\n100;x;\"a;1\";ada\r\n200;y;b;=bob\r\n"
	v.upload(path, "file", rows, "batchReference", "2026/11 #7", "rows", "not,these,1", "action", "validate").
		expect(200, "2 rows of AUD\u00a03.00 together", "1 succeeded", "1 customer not active", `100;x;"a;1";ada`)
	v.open(path).expect(200, "No batch matches")
	for rows, complaint := range map[string]string{
		"":                   "rows",
		"ada,a,1\n\nada,a,2": "rowReference in line 3 is the same as rowReference in line 1",
		"ada,a,0":            "amount in line 1 must be",
		"ada,a,ten":          "<code>rows[0].amount</code>",
		"Amount;rowReference;customerReference\n12,50;a;ada": "amount in line 2 must be an integer. Amounts are in cents",
		"ada,a":                                 "amount in line 1 is required",
		"amount,rowReference\n1,a":              "has no column customerReference",
		"ada,\"a,1":                             "cannot be read as CSV",
		strings.Repeat("ada,a,1\n", 1001):       "rows",
		"customerReference,rowReference,Ämount": "amount in line 1",
	} {
		v.submit(path, "batchReference", "x", "rows", rows, "action", "submit").expect(400, complaint)
	}
	to := v.upload(path, "file", rows, "batchReference", "2026/11 #7", "rows", "", "action", "submit").expect(303).to()
	page := v.open(to).expect(200, "2026/11 #7", "0 of 2 rows settled", "data-poll", "Cancel the open rows", "a;1").
		lacks("Retry the rows")
	if strings.Contains(page.body, "of 2 rows settled</small></p>\n<progress max=\"2\" value=\"1\"") {
		t.Error("progress before any work")
	}
	v.submit(path, "batchReference", "2026/11 #7", "rows", "ada,a,5", "action", "submit").
		expect(409, "batch-reference-conflict")
	v.submit(c.page("/batch"), "ref", "2026/11 #7", "action", "retry", "batchReference", "again").expect(409)
	v.submit(c.page("/batch"), "ref", "2026/11 #7", "action", "cancel").expect(303)
	v.open(to).expect(200, "2 of 2 rows settled", "2 cancelled", "Retry the rows").
		lacks("data-poll", "Cancel the open rows")
	v.open(to + "&outcome=succeeded").expect(200).lacks("a;1")
	v.submit(c.page("/batch"), "ref", "2026/11 #7", "action", "retry", "batchReference", "again").
		expect(409, "nothing-to-retry")
	table := v.open(c.page("/batch.csv?ref="+url.QueryEscape("2026/11 #7"))).
		expect(200, "rowReference,customerReference", "'=bob")
	if !strings.HasPrefix(table.header.Get("Content-Type"), "text/csv") ||
		!strings.HasPrefix(table.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the table has the headers %v", table.header)
	}
	v.open(path+"?state=settled").expect(200, "2026/11 #7")
	v.open(path+"?state=inProgress").expect(200, "No batch matches")
}

func TestConsoleWebhooks(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open("/console/webhooks").expect(200, "No event matches", "None. Events are kept as undelivered")
	v.submit("/console/webhooks", "action", "put", "endpoint", "default", "url", "ftp://x", "events",
		"transactionStatus").expect(400, "url must")
	v.submit("/console/webhooks", "action", "put", "endpoint", "default", "url", "https://partner.example/", "events",
		"batchSettled").expect(400, "events")
	page := v.submit("/console/webhooks", "action", "put", "endpoint", "default", "url", "https://partner.example/hook",
		"events", "transactionStatus",
		"events", "batchSettled").expect(200, "shown this once", "https://partner.example/hook", "batch settled")
	secret := page.find(`<code>(whsec_[^<]*)`)
	v.open("/console/webhooks").expect(200).lacks(secret)

	paid := models.Amount(5)
	id, _, err := c.store.InsertWebhookEvent(t.Context(), c.owner, models.NewTraceID(), models.TransactionStatusPush{
		SiteID: models.PushSite{ID: c.site}, PaymentIntentID: models.NewPaymentIntentID(), TransactionStatus: "Settled",
		OrderID: "<&>", AmountPaid: &paid,
	})
	check(t, err)
	v.open("/console/webhooks").expect(200, "Transaction status: Settled", "pending", "1 event matches")
	v.open("/console/webhooks?status=failed").expect(200, "No event matches")
	one := "/console/webhooks/event?id=" + id.String()
	event, _, err := c.store.WebhookEvent(t.Context(), c.owner, id)
	check(t, err)
	sign := func(key, body string) []byte {
		m := hmac.New(sha256.New, []byte(key))
		m.Write([]byte(body))
		return m.Sum(nil)
	}
	bytesOf, base64Of := string(event.Body), base64.StdEncoding.EncodeToString
	right := base64Of(sign(secret, bytesOf))
	v.open(one).expect(200, bytesOf, right, fmt.Sprintf("exactly these %d bytes", len(bytesOf)), "None was made")
	decoded, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	for claimed, verdict := range map[string]string{
		right: "Your code computed the right signature",
		hex.EncodeToString(sign(secret, bytesOf)):                     "in hexadecimal",
		strings.TrimRight(right, "="):                                 "without the padding",
		base64Of(sign(strings.TrimPrefix(secret, "whsec_"), bytesOf)): "lacks the prefix",
		base64Of(sign(string(decoded), bytesOf)):                      "decoded secret",
		base64Of(sign(secret, bytesOf+"\n")):                          "line break at its end that was not sent",
		base64Of(sign(secret, "x")):                                   "matches no usual mistake",
		"<b>":                                                         "matches no usual mistake",
	} {
		v.submit("/console/webhooks/event", "action", "check", "id", id.String(), "signature", claimed).
			expect(200, verdict)
	}
	v.submit("/console/webhooks/event", "action", "redeliver", "id", id.String()).expect(303)
	v.submit("/console/webhooks", "action", "redeliver", "status", "failed").expect(303)
	v.submit("/console/webhooks", "action", "rotate", "when", "now").expect(200, "whsec_", "moves to it at").
		lacks(secret)
	v.submit("/console/webhooks/event", "action", "check", "id", id.String(), "signature", right).
		expect(200, "another live secret")
	// the test has no deliverer
	v.submit("/console/webhooks", "action", "test", "endpoint", "default").expect(503, "The API answered 503")
	v.submit("/console/webhooks", "action", "delete", "endpoint", "default").expect(303)
	v.open("/console/webhooks").expect(200).lacks("partner.example/hook")
	v.open("/console/webhooks/event?id=evt_x").expect(404)
}

func TestConsoleRequests(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open("/console/requests").expect(200, "No request yet") // the console's own reads are left out
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {c.id}, "client_secret": {c.secret}}
	var granted struct {
		Token string `json:"access_token"`
	}
	asked := c.visitor(t)
	answer, err := asked.http.PostForm(c.BaseURL+"/oauth2/token", form)
	check(t, err)
	check(t, json.NewDecoder(answer.Body).Decode(&granted))
	check(t, answer.Body.Close())
	partner := c.With("Authorization", "Bearer "+granted.Token).With("User-Agent", "billing-run/1")
	invited := partner.Post(c.customers("/invitations"),
		`{"customerReference":"ada","secret":"hush \"hush\"","token":"hush`+"\u00e9"+`"}`).Expect(201)
	partner.Get(c.customers("?limit=1"))
	partner.Post(c.intents(""), `{"amount":0}`).Expect(400)
	put := partner.Send("PUT", "/webhooks/endpoints/default", `{"url":"https://partner.example/"}`).Expect(201)

	page := v.open("/console/requests").expect(200, "4 of 4 match", "/customers/invitations", "/customers?limit=1",
		"400", "/webhooks/endpoints/default")
	page.lacks("oauth2")
	v.open("/console/requests?status=4").expect(200, "1 of 4 match", "/payment-intent").lacks("/invitations")
	v.open("/console/requests?method=PUT").expect(200, "1 of 4 match")
	v.open("/console/requests?q="+invited.TraceID()).expect(200, "1 of 4 match")
	one := v.open("/console/request?trace="+invited.TraceID()).
		expect(200, `"customerReference": "ada"`, `"state": "invited"`, "billing-run/1", "[redacted]", c.id)
	one.expect(200, "What it led to", "invitation", `href="`+c.page("/customer?ref=ada")+`"`)
	one.lacks("hush", "/signup/A", granted.Token, `row">Authorization`)
	v.open("/console/request?trace="+put.TraceID()).expect(200, "https://partner.example/", `"secret": "[redacted]"`,
		"has stored anything").lacks("whsec_")
	v.open("/console/request?trace="+strings.Repeat("0", 32)).expect(404, "not among the latest")
	v.open("/console/request?trace=x").expect(404)

	v.open(c.page("/customers"))
	v.submit(c.page("/customers"), "customerReference", "bob").expect(303)
	v.open("/console/requests").expect(200, "5 of 5 match", "console")

	strangerID, strangerSecret := c.client(t, organisationOf(t, c.store, c.otherSite), models.PartnerScopes)
	stranger := c.visitor(t)
	stranger.open("/console/session")
	stranger.submit("/console/session", "clientId", strangerID, "clientSecret", strangerSecret).expect(303)
	stranger.open("/console/requests").expect(200, "No request yet")
	stranger.open("/console/request?trace="+invited.TraceID()).expect(404).lacks(`"ada"`, "ref=ada")
}

func TestConsoleClock(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	v.open("/console/clock").expect(200, "21 Sep 2026 14:13:20")
	v.submit("/console/clock", "advanceMs", "3600000").expect(303)
	v.open("/console/clock").expect(200, "21 Sep 2026 15:13:20")
	v.submit("/console/clock", "hours", "0.5").expect(303)
	v.open("/console/clock").expect(200, "21 Sep 2026 15:43:20")
	v.submit("/console/clock", "hours", "-1").expect(400, "advanceMs must be")
	v.submit("/console/clock", "hours", "soon").expect(400, "must be a number")
	v.submit("/console/clock", "hours", "1e300").expect(400)
}

func TestConsoleFaults(t *testing.T) {
	t.Parallel()
	hosted := newConsoles(t, nil)
	v := hosted.signedIn(t)
	v.open("/console").expect(200).lacks("/console/faults")
	v.open("/console/faults").expect(404)

	c := newConsoles(t, func(cfg *api.Config) { cfg.Sandbox.Faults = true })
	v = c.signedIn(t)
	v.open("/console/faults").expect(200, "The bank is down", "Answers get lost").lacks("End it now", "data-poll")
	v.submit("/console/faults", "fault", "bankDown", "seconds", "120").expect(303)
	v.open("/console/faults").expect(200, "until", "21 Sep 2026 14:15:20", "End it now", "data-poll")
	v.submit("/console/faults", "fault", "bankDown", "seconds", "0").expect(303)
	v.open("/console/faults").expect(200).lacks("End it now")
	v.submit("/console/faults", "fault", "earthquake", "seconds", "5").expect(400, "There is no such fault")
	v.submit("/console/faults", "fault", "bankDown", "seconds", "86401").expect(400, "last too long")
	v.submit("/console/faults", "fault", "bankDown", "seconds", "-1").expect(400, "There is no such fault")
	for _, seconds := range []string{"", "x", "99999999999"} {
		v.submit("/console/faults", "fault", "bankDown", "seconds", seconds).expect(400, "The form was not accepted")
	}
}

// Each page lists the calls that made it, as commands that a shell takes.
func TestConsoleShowsItsCalls(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.signedIn(t)
	page := v.open(c.page("/customer?ref=" + url.QueryEscape("o'ne"))).expect(404)
	page.expect(404, `'`+publicURL+c.customers("/o%27ne")+`'`, "Authorization: Bearer $TOKEN")
	v.open(c.page("/payments")).expect(200, "1 API call behind this page")
}

func TestConsoleAssets(t *testing.T) {
	t.Parallel()
	c := newConsoles(t, nil)
	v := c.visitor(t)
	page := v.open("/console/session").expect(200)
	for kind, pattern := range map[string]string{"text/css": `href="(/console/assets/[^"]*)"`,
		"text/javascript": `src="(/console/assets/[^"]*)"`} {
		asset := v.open(page.find(pattern)).expect(200)
		if !strings.HasPrefix(asset.header.Get("Content-Type"), kind) ||
			!strings.Contains(asset.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %v", kind, asset.header)
		}
	}
	v.open("/console/assets/none.css").expect(404)
}
