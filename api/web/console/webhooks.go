package console

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"partnerbilling/api/sealed"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// defaultEndpoint is the name of the endpoint for Sites without an endpoint of their own.
const defaultEndpoint = "default"

// endpointItem is an endpoint as the API lists it.
type endpointItem struct {
	Endpoint string   `json:"endpoint"` // "default" or the siteId
	URL      string   `json:"url"`
	Events   []string `json:"events"`
}

type endpointList struct {
	Items []endpointItem `json:"items"`
}

// endpoints returns the organisation's endpoints.
func (v *visit) endpoints() ([]endpointItem, error) {
	var list endpointList
	err := v.get("/webhooks/endpoints", nil, &list)
	return list.Items, err
}

// webhookEvent is a webhook event as the API returns it.
type webhookEvent struct {
	IdempotencyKey    string           `json:"idempotencyKey"`
	Type              string           `json:"type"`
	SiteID            string           `json:"siteId"`
	PaymentIntentID   string           `json:"paymentIntentId"`
	TransactionStatus string           `json:"transactionStatus"`
	Test              bool             `json:"test"`
	Status            string           `json:"status"`
	AttemptCount      int              `json:"attemptCount"`
	CreatedAt         models.Millis    `json:"createdAt"`
	NextAttemptAt     models.Millis    `json:"nextAttemptAt"`
	DeliveredAt       models.Millis    `json:"deliveredAt"`
	Body              string           `json:"body"`
	BodySHA256        string           `json:"bodySha256"`
	Attempts          []webhookAttempt `json:"attempts"`
}

// webhookAttempt is a webhook attempt as the API returns it.
type webhookAttempt struct {
	Number       int           `json:"number"`
	Endpoint     string        `json:"endpoint"`
	URL          string        `json:"url"`
	StartedAt    models.Millis `json:"startedAt"`
	DurationMs   int64         `json:"durationMs"`
	StatusCode   int           `json:"statusCode"`
	Address      string        `json:"address"`
	Error        string        `json:"error"`
	ResponseHead string        `json:"responseHead"`
}

// Delivered reports whether the endpoint accepted the event.
func (a webhookAttempt) Delivered() bool { return a.StatusCode >= 200 && a.StatusCode < 300 }

// eventList is a page of the API's list of webhook events.
type eventList struct {
	page
	Items []webhookEvent `json:"items"`
}

// open reports whether an event of the list is pending.
func (l *eventList) open() bool {
	return slices.ContainsFunc(l.Items, func(e webhookEvent) bool { return e.Status == "pending" })
}

// webhooksPage is the page with the organisation's endpoints and events.
type webhooksPage struct {
	Endpoints []endpointItem
	Targets   []string // the endpoints that can be set: "default" and the Sites of the session
	Types     []string // the types of events that an endpoint may ask for
	List      eventList
	Statuses  []string
	Chosen    string
	SiteID    string
	Pager     pager
	URL       string   // of the form
	Endpoint  string   // of the form
	Events    []string // of the form
	Secret    *newSecret
	Receiver  string // the address of the built-in receiver
}

// newSecret is a signing secret that a page shows once.
type newSecret struct {
	Text       string
	ActivateAt models.Millis // 0: it is active already
	OverlapTo  models.Millis // until then, both secrets sign; 0 for the first secret
}

func (c *Console) showWebhooks(v *visit) error {
	p := webhooksPage{Endpoint: defaultEndpoint, Events: []string{string(models.EventTransactionStatus)}}
	return v.webhooksPage(http.StatusOK, p, nil)
}

func (v *visit) webhooksPage(status int, p webhooksPage, faults []fault) error {
	var err error
	if p.Endpoints, err = v.endpoints(); err != nil {
		return err
	}
	if p.Receiver, err = v.receiverURL(); err != nil {
		return err
	}
	p.Targets = []string{defaultEndpoint}
	for _, id := range slices.Backward(v.session.Sites) {
		p.Targets = append(p.Targets, id.String())
	}
	for _, t := range models.WebhookEventTypes {
		p.Types = append(p.Types, string(t))
	}
	for _, s := range models.WebhookStatuses {
		p.Statuses = append(p.Statuses, string(s))
	}
	p.Chosen, p.SiteID = v.query("status"), v.query("siteId")
	if err := v.get("/webhooks/events", v.listQuery("status", "siteId", "type"), &p.List); err != nil {
		return err
	}
	p.Pager = v.pager(p.List.page, "status", "siteId", "type")
	return v.render(status, "webhooks", &base{Title: "Webhooks", Tab: "webhooks", Poll: p.List.open(),
		Faults: faults}, p)
}

// changeWebhooks sets, deletes or tests an endpoint, rotates the secret, or redelivers events.
func (c *Console) changeWebhooks(v *visit) error {
	p := webhooksPage{Endpoint: v.form("endpoint"), URL: v.form("url"), Events: v.r.PostForm["events"]}
	next := Path + "/webhooks"
	var err error
	switch v.form("action") {
	case "put":
		err = v.putEndpoint(&p)
	case "delete":
		err = v.send(http.MethodDelete, pathOf("webhooks", "endpoints", p.Endpoint), nil, nil)
	case "test":
		var event string
		event, err = v.testEndpoint(p.Endpoint)
		next = eventPath(event)
	case "rotate":
		err = v.rotate(&p)
	case "redeliver":
		err = v.post("/webhooks/events/redelivery", object("status", v.form("status")), nil)
	default:
		return errForm
	}
	refusal, err := refused(err)
	switch {
	case refusal != nil:
		return v.webhooksPage(refusal.Status, p, refusal.faults)
	case err != nil:
		return err
	case p.Secret != nil: // shown once
		return v.webhooksPage(http.StatusOK, p, nil)
	}
	return v.seeOther(next)
}

// eventPath returns the path of an event's page.
func eventPath(id string) string { return web.WithQuery(Path+"/webhooks/event", "id", id) }

// testEndpoint sends a test event and returns its idempotencyKey.
func (v *visit) testEndpoint(endpoint string) (string, error) {
	var made webhookEvent
	err := v.post(pathOf("webhooks", "endpoints", endpoint, "test"), nil, &made)
	return made.IdempotencyKey, err
}

// putEndpoint sets an endpoint. For the organisation's first endpoint, it fills in the secret.
func (v *visit) putEndpoint(p *webhooksPage) error {
	var made struct {
		Secret string `json:"secret"`
	}
	body := map[string]any{"url": p.URL, "events": p.Events}
	err := v.send(http.MethodPut, pathOf("webhooks", "endpoints", p.Endpoint), body, &made)
	if made.Secret != "" {
		p.Secret = &newSecret{Text: made.Secret}
	}
	return err
}

// rotate makes the next secret and fills it in.
func (v *visit) rotate(p *webhooksPage) error {
	body := map[string]any{}
	if v.form("when") == "now" {
		body["activateAt"] = 0
	}
	var made struct {
		Secret     string        `json:"secret"`
		ActivateAt models.Millis `json:"activateAt"`
		OverlapTo  models.Millis `json:"overlapTo"`
	}
	err := v.post("/webhooks/secret/rotation", body, &made)
	if made.Secret != "" {
		p.Secret = &newSecret{made.Secret, made.ActivateAt, made.OverlapTo}
	}
	return err
}

// eventPage is the page of one event, with its attempts and a check of its signature.
type eventPage struct {
	Event     webhookEvent
	Signature signatureCheck
}

func (c *Console) showEvent(v *visit) error {
	return v.eventPage(http.StatusOK, v.query("id"), "", nil)
}

func (v *visit) eventPage(status int, id, claimed string, faults []fault) error {
	var p eventPage
	if err := v.get(pathOf("webhooks", "events", id), nil, &p.Event); err != nil {
		return err
	}
	var err error
	if p.Signature, err = v.checkSignature([]byte(p.Event.Body), claimed); err != nil {
		return err
	}
	return v.render(status, "event", &base{
		Title: "Webhook " + spaced(p.Event.Type), Tab: "webhooks", Poll: p.Event.Status == "pending", Faults: faults,
	}, p)
}

// changeEvent redelivers an event, or checks a signature of its body.
func (c *Console) changeEvent(v *visit) error {
	id := v.form("id")
	switch v.form("action") {
	case "redeliver":
		refusal, err := refused(v.post(pathOf("webhooks", "events", id, "redelivery"), nil, nil))
		if refusal != nil {
			return v.eventPage(refusal.Status, id, "", refusal.faults)
		}
		if err != nil {
			return err
		}
		return v.seeOther(eventPath(id))
	case "check":
		return v.eventPage(http.StatusOK, id, v.form("signature"), nil)
	}
	return errForm
}

// receiverPage is the page of the built-in receiver, an endpoint at which partners look at webhooks
// before they have an endpoint of their own.
type receiverPage struct {
	Address    string
	Used       []string // the endpoints that lead here
	Default    string   // the URL of the endpoint default, if it leads elsewhere; "" without one
	Deliveries []delivery
	Secret     *newSecret
}

// Repeated reports whether an older delivery has the same idempotencyKey as the i-th. The latest
// delivery comes first.
func (p receiverPage) Repeated(i int) bool {
	id := p.Deliveries[i].EventID
	return id != "" && slices.ContainsFunc(p.Deliveries[i+1:], func(d delivery) bool { return d.EventID == id })
}

func (c *Console) showReceiver(v *visit) error { return v.receiverPage(http.StatusOK, nil, nil) }

func (v *visit) receiverPage(status int, secret *newSecret, faults []fault) error {
	address, err := v.receiverURL()
	if err != nil {
		return err
	}
	endpoints, err := v.endpoints()
	if err != nil {
		return err
	}
	deliveries := v.console.deliveries.Latest(v.principal.OrganisationID)
	p := receiverPage{Address: address, Deliveries: deliveries, Secret: secret}
	for _, e := range endpoints {
		switch {
		case strings.HasPrefix(e.URL, address):
			p.Used = append(p.Used, e.Endpoint)
		case e.Endpoint == defaultEndpoint:
			p.Default = e.URL
		}
	}
	return v.render(status, "receiver", &base{
		Title: "Webhook receiver", Tab: "receiver", Poll: len(p.Used) > 0 || len(p.Deliveries) > 0, Faults: faults,
	}, p)
}

// changeReceiver sets the default endpoint to the receiver, sends a test event to that endpoint, or
// clears the receiver's deliveries.
func (c *Console) changeReceiver(v *visit) error {
	var secret *newSecret
	var err error
	switch v.form("action") {
	case "clear":
		c.deliveries.Clear(v.principal.OrganisationID)
	case "test":
		_, err = v.testEndpoint(defaultEndpoint)
	case "use":
		secret, err = v.useReceiver()
	default:
		return errForm
	}
	refusal, err := refused(err)
	switch {
	case refusal != nil:
		return v.receiverPage(refusal.Status, nil, refusal.faults)
	case err != nil:
		return err
	case secret != nil: // shown once
		return v.receiverPage(http.StatusOK, secret, nil)
	}
	return v.seeOther(Path + "/receiver")
}

// useReceiver sets the organisation's default endpoint to the receiver, for all types of events. It
// returns the secret if that was the organisation's first endpoint, otherwise nil.
func (v *visit) useReceiver() (*newSecret, error) {
	p := webhooksPage{Endpoint: defaultEndpoint}
	for _, t := range models.WebhookEventTypes {
		p.Events = append(p.Events, string(t))
	}
	var err error
	if p.URL, err = v.receiverURL(); err != nil {
		return nil, err
	}
	err = v.putEndpoint(&p)
	return p.Secret, err
}

// receive is the endpoint of the built-in receiver. Its address is secret, and names the
// organisation.
func (c *Console) receive(w http.ResponseWriter, r *http.Request) {
	organisation, err := c.receiverOf(r.Context(), r.PathValue("token"))
	if errors.Is(err, sealed.ErrInvalid) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, "The receiver is not available.", http.StatusServiceUnavailable)
		return
	}
	c.keepDelivery(w, r, organisation)
}
