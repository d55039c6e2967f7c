package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// WebhookDeliverer delivers a test event while the partner waits for the result.
// *jobs.DeliverWebhook implements it.
type WebhookDeliverer interface {
	// Deliver makes the attempt of an organisation's task and returns the attempt, whether it
	// succeeded or failed. It returns models.ErrNothingDue if a worker has taken the task, or if
	// the endpoint is gone.
	Deliver(
		ctx context.Context, organisation models.OrganisationID, task models.TaskID,
	) (models.WebhookAttempt, error)
}

// webhooks handles the routes about an organisation's webhook endpoints and events.
type webhooks struct {
	store     *models.Store
	keys      *models.Keys
	sites     Sites
	deliverer WebhookDeliverer      // nil answers tests with 503
	notify    func([]models.TaskID) // may be nil
	pages     *paginator
	targets   models.WebhookTargets
	now       func() time.Time
	streams   *eventStreams
	watches   *watches[models.OrganisationID, models.WebhookStreamPosition]
}

func newWebhooks(cfg Config, streams *eventStreams) *webhooks {
	return &webhooks{
		store: cfg.Store, keys: cfg.Keys, sites: cfg.Sites, deliverer: cfg.Webhooks,
		notify: cfg.Notify, pages: newPaginator(cfg),
		targets: models.WebhookTargets{Sandbox: cfg.Sandbox != nil, Loopback: cfg.Sandbox != nil &&
			cfg.Sandbox.Loopback}, now: cfg.Now,
		streams: streams,
		watches: newWatches(cfg.Log, listenInterval, listenInterval, cfg.Store.LastWebhook),
	}
}

// webhookEndpointData is an endpoint on the wire. Secret is the webhook secret, shown only once.
type webhookEndpointData struct {
	Endpoint   string                      `json:"endpoint"` // "default" or the siteId
	URL        string                      `json:"url"`
	Events     []models.WebhookEventType   `json:"events"`
	State      models.WebhookEndpointState `json:"state"`
	CreatedAt  models.Millis               `json:"createdAt"`
	UpdatedAt  models.Millis               `json:"updatedAt"`
	DisabledAt models.Millis               `json:"disabledAt,omitempty"`
	RetryAt    models.Millis               `json:"retryAt,omitempty"` // only while paused
	// only when the organisation's first endpoint is created
	Secret string `json:"secret,omitempty"`
}

// describeEndpoint returns an endpoint as the answer shows it, without the secret.
func describeEndpoint(e *models.WebhookEndpoint) webhookEndpointData {
	return webhookEndpointData{
		Endpoint: endpointName(e.SiteID), URL: e.URL, Events: e.Events, State: e.State(), CreatedAt: e.CreatedAt,
		UpdatedAt: e.UpdatedAt, DisabledAt: e.DisabledAt, RetryAt: e.Breaker.OpenUntil,
	}
}

// webhookEndpointList lists an organisation's endpoints.
type webhookEndpointList struct {
	Items []webhookEndpointItem `json:"items"`
}

// webhookEndpointItem is an endpoint in a webhookEndpointList.
type webhookEndpointItem struct {
	Endpoint string                    `json:"endpoint"` // "default" or the siteId
	URL      string                    `json:"url"`
	Events   []models.WebhookEventType `json:"events"`
}

// listEndpoints answers with all endpoints of the organisation.
func (w *webhooks) listEndpoints(ctx context.Context, r *Request) error {
	endpoints, err := w.store.WebhookEndpoints(ctx, r.Principal.OrganisationID)
	if err != nil {
		return err
	}
	list := webhookEndpointList{Items: make([]webhookEndpointItem, len(endpoints))}
	for i := range endpoints {
		e := &endpoints[i]
		list.Items[i] = webhookEndpointItem{endpointName(e.SiteID), e.URL, e.Events}
	}
	return r.JSON(http.StatusOK, list)
}

// endpointName returns the last segment of an endpoint's path: the siteId, or "default" for the
// zero Site.
func endpointName(site models.SiteID) string {
	if site.IsZero() {
		return "default"
	}
	return site.String()
}

// getEndpoint answers with the endpoint of the Site in the path, or the default endpoint.
func (w *webhooks) getEndpoint(ctx context.Context, r *Request) error {
	endpoint, err := w.store.WebhookEndpoint(ctx, r.Principal.OrganisationID, r.Site.ID)
	if err != nil {
		return webhookError(r, err)
	}
	return r.JSON(http.StatusOK, describeEndpoint(&endpoint))
}

// putEndpoint configures and enables the endpoint in the path. The answer is 201 with the secret if
// this creates the organisation's first endpoint, else 200.
func (w *webhooks) putEndpoint(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "url", "events")
	url := body.RequiredString("url", w.targets.CheckURL)
	events := readEventTypes(body, r.Body.Get("events"))
	if err := r.BodyError(body); err != nil {
		return err
	}
	endpoint, secret, err := w.store.PutWebhookEndpoint(ctx, w.keys.Keyring(), r.Principal.OrganisationID, r.Site.ID,
		url, events...)
	if err != nil {
		return webhookError(r, err)
	}
	data := describeEndpoint(&endpoint)
	if secret == nil {
		return r.JSON(http.StatusOK, data)
	}
	data.Secret = secret.Reveal()
	r.Location("webhooks", "endpoints", data.Endpoint)
	return r.JSON(http.StatusCreated, data)
}

// maxEventTypes is the maximum number of elements in the field events.
const maxEventTypes = 100

// readEventTypes decodes the event types of an endpoint from the field events. It returns none if
// the field is absent.
func readEventTypes(body strictjson.Fields, field strictjson.Value) (events []models.WebhookEventType) {
	body.OptionalStrings("events", maxEventTypes, func(text string) error {
		if err := isOneOf(models.WebhookEventTypes)(text); err != nil {
			return err
		}
		event := models.WebhookEventType(text)
		if slices.Contains(events, event) {
			return errRepeatedType
		}
		events = append(events, event)
		return nil
	})
	if field.Kind() == strictjson.Array && !slices.Contains(events, models.EventTransactionStatus) {
		body.Invalid("events", "must include transactionStatus")
	}
	return events
}

// errRepeatedType is the fault of an event type that occurs twice.
var errRepeatedType = errors.New("must not repeat another element")

// deleteEndpoint deletes the endpoint in the path.
func (w *webhooks) deleteEndpoint(ctx context.Context, r *Request) error {
	if err := w.store.DeleteWebhookEndpoint(ctx, r.Principal.OrganisationID, r.Site.ID); err != nil {
		return webhookError(r, err)
	}
	return r.JSON(http.StatusOK, deletedEndpointData{endpointName(r.Site.ID)})
}

// deletedEndpointData names a deleted endpoint: "default" or the siteId.
type deletedEndpointData struct {
	Endpoint string `json:"endpoint"`
}

// webhookTestData is the result of a test event: its one attempt, and its status.
type webhookTestData struct {
	IdempotencyKey models.WebhookEventID `json:"idempotencyKey"`
	Status         models.WebhookStatus  `json:"status"`
	webhookAttemptData
}

// testEndpoint sends a test event to the endpoint in the path, and answers with the attempt.
func (w *webhooks) testEndpoint(ctx context.Context, r *Request) error {
	if w.deliverer == nil {
		return models.ErrUnavailable
	}
	id, task, err := w.store.CreateTestWebhook(ctx, r.Principal.OrganisationID, r.Site.ID, r.TraceID())
	if err != nil {
		return webhookError(r, err)
	}
	var attempt models.WebhookAttempt
	busy := r.withoutSlot(ctx, func() {
		attempt, err = w.deliverer.Deliver(ctx, r.Principal.OrganisationID, task)
	})
	if errors.Is(err, models.ErrNothingDue) && busy == nil {
		attempt, err = w.awaitTest(ctx, r, id)
		err = webhookError(r, err)
	}
	if err := errors.Join(err, busy); err != nil {
		return err
	}
	status := models.WebhookDelivered
	if attempt.Error != "" {
		status = models.WebhookFailed
	}
	return r.JSON(http.StatusOK, webhookTestData{id, status, describeAttempt(&attempt)})
}

// awaitTest waits until a worker has delivered a test event, and returns the last attempt. It
// returns models.ErrNoWebhookEndpoint if the event has ended without an attempt.
func (w *webhooks) awaitTest(ctx context.Context, r *Request, id models.WebhookEventID) (models.WebhookAttempt, error) {
	waiting, stop := r.UntilDisconnect(ctx)
	defer stop()
	for {
		event, attempts, err := w.store.WebhookEvent(ctx, r.Principal.OrganisationID, id)
		switch {
		case err != nil:
			return models.WebhookAttempt{}, err
		case event.Status == models.WebhookPending:
		case len(attempts) == 0:
			return models.WebhookAttempt{}, models.ErrNoWebhookEndpoint
		default:
			return attempts[len(attempts)-1], nil
		}
		err = r.pause(waiting)
		if err == nil && waiting.Err() != nil {
			err = models.ErrUnavailable
		}
		if err != nil {
			return models.WebhookAttempt{}, err
		}
	}
}

// webhookRotationData is the secret that will replace the current one. ActivateAt is when
// x-svc-signature moves to it. OverlapTo is until when webhook-signature also has the previous
// secret.
type webhookRotationData struct {
	Secret     string        `json:"secret"`
	ActivateAt models.Millis `json:"activateAt"`
	OverlapTo  models.Millis `json:"overlapTo"`
}

// rotateSecret creates the organisation's next secret, and answers with it.
func (w *webhooks) rotateSecret(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "activateAt")
	activateAt := optionalMillis(body, "activateAt")
	if err := r.BodyError(body); err != nil {
		return err
	}
	rotation, err := w.store.RotateWebhookSecret(ctx, w.keys.Keyring(), r.Principal.OrganisationID, activateAt)
	if err != nil {
		return webhookError(r, err)
	}
	return r.JSON(http.StatusOK, webhookRotationData{rotation.Secret.Reveal(), rotation.ActivateAt, rotation.OverlapTo})
}

// webhookError maps errors about endpoints, secrets and events to their answers. It returns other
// errors unchanged.
func webhookError(r *Request, err error) error {
	switch {
	case errors.Is(err, models.ErrNoWebhookEndpoint):
		target := "siteId"
		if r.Site.ID.IsZero() {
			target = "" // the path of the default endpoint has no siteId
		}
		return Refuse(WebhookEndpointNotFound, target)
	case errors.Is(err, models.ErrNoWebhookSecret):
		return Refuse(WebhookSecretNotFound, "")
	case errors.Is(err, models.ErrNotFound):
		return Refuse(WebhookEventNotFound, "idempotencyKey")
	}
	return err
}
