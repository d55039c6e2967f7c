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

// WebhookDeliverer delivers a test event while the partner waits.
type WebhookDeliverer interface {
	// Deliver makes the attempt of an organisation's task and returns it. It returns
	// models.ErrNothingDue if a worker has taken the task, or if the endpoint is gone.
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

// webhookEndpointData is an endpoint on the wire.
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

// webhookEndpointItem is an endpoint in the list.
type webhookEndpointItem struct {
	Endpoint string                    `json:"endpoint"` // "default" or the siteId
	URL      string                    `json:"url"`
	Events   []models.WebhookEventType `json:"events"`
}

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

// endpointName returns the last segment of an endpoint's path.
func endpointName(site models.SiteID) string {
	if site.IsZero() {
		return "default"
	}
	return site.String()
}

func (w *webhooks) getEndpoint(ctx context.Context, r *Request) error {
	endpoint, err := w.store.WebhookEndpoint(ctx, r.Principal.OrganisationID, r.Site.ID)
	if err != nil {
		return webhookError(r, err)
	}
	return r.JSON(http.StatusOK, describeEndpoint(&endpoint))
}

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

// maxEventTypes is the largest accepted number of elements of events.
const maxEventTypes = 100

// readEventTypes decodes the event types of an endpoint, none if the field is absent.
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

var errRepeatedType = errors.New("must not repeat another element")

func (w *webhooks) deleteEndpoint(ctx context.Context, r *Request) error {
	if err := w.store.DeleteWebhookEndpoint(ctx, r.Principal.OrganisationID, r.Site.ID); err != nil {
		return webhookError(r, err)
	}
	return r.JSON(http.StatusOK, deletedEndpointData{endpointName(r.Site.ID)})
}

type deletedEndpointData struct {
	Endpoint string `json:"endpoint"`
}

// webhookTestData is the result of a test event.
type webhookTestData struct {
	IdempotencyKey models.WebhookEventID `json:"idempotencyKey"`
	Status         models.WebhookStatus  `json:"status"`
	webhookAttemptData
}

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

// awaitTest waits for the end of a test event that a worker delivers, and returns the last attempt.
// It returns models.ErrNoWebhookEndpoint if the event has ended without an attempt.
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

// webhookRotationData is the secret that will replace the current one.
type webhookRotationData struct {
	Secret     string        `json:"secret"`
	ActivateAt models.Millis `json:"activateAt"`
	OverlapTo  models.Millis `json:"overlapTo"`
}

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

// webhookError maps errors about endpoints, secrets and events to their answers.
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
