package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"partnerbilling/models"
)

const (
	// listenInterval is the time between two polls for new events. All streams of an organisation
	// share the polls.
	listenInterval = 500 * time.Millisecond
	// listenStepTimeout bounds the reading of one page of events, the wait for a slot included.
	listenStepTimeout = 5 * time.Second
)

// listen streams the organisation's events as they are created or redelivered. It serves
// development and does not replace an endpoint. A client that reconnects with Last-Event-ID gets
// each later event exactly once.
func (w *webhooks) listen(ctx context.Context, r *Request) error {
	after, err := lastEventID(r, models.ParseWebhookStreamPosition)
	if err != nil {
		return err
	}
	return w.streams.serve(ctx, r, func() (eventSource, error) {
		organisation := r.Principal.OrganisationID
		tail, err := w.store.TailWebhooks(ctx, organisation, after)
		if err != nil {
			return nil, err
		}
		watch, leave := w.watches.join(r, organisation)
		return &webhookListener{
			webhooks: w, watch: watch, leave: leave, tail: tail, organisation: organisation,
			slot: r.stepSlot(),
		}, nil
	})
}

// webhookListener is the eventSource of one stream of an organisation's events.
type webhookListener struct {
	*webhooks
	watch        *watch[models.WebhookStreamPosition]
	leave        func() // leaves the watch
	tail         *models.WebhookTail
	organisation models.OrganisationID
	slot         slot // held during each query
	page         eventPage
}

// streamedRequest is an event as a stream sends it: the headers and the body of the request that an
// endpoint would get.
type streamedRequest struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// eventPage is a page of events, with the secrets that sign them.
type eventPage struct {
	events  []models.WebhookStreamed
	secrets models.WebhookSecrets
}

// The methods of eventSource.

func (l *webhookListener) position() string { return l.tail.Position().String() }

func (l *webhookListener) version() (number uint64, changed <-chan struct{}) {
	seen, changed := l.watch.current()
	return seen.number, changed
}

func (l *webhookListener) close() { l.leave() }

func (l *webhookListener) read(ctx context.Context) (count int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenStepTimeout)
	defer cancel()
	if err := l.slot.acquire(ctx, true); err != nil {
		return 0, false, err
	}
	defer l.slot.release()
	l.page.secrets, err = l.store.WebhookSecrets(ctx, l.keys.Keyring(), l.organisation)
	if err != nil && !errors.Is(err, models.ErrNoWebhookSecret) {
		return 0, false, err
	}
	l.page.events, more, err = l.tail.Next(ctx)
	return len(l.page.events), more, err
}

func (l *webhookListener) write(out *bufio.Writer) error {
	for i := range l.page.events {
		e := &l.page.events[i]
		h := streamedRequest{Headers: map[string]string{}, Body: string(e.Body)}
		for _, header := range l.page.secrets.Sign(&e.WebhookEvent, l.now(), max(1, e.Attempts)) {
			h.Headers[header.Name] = header.Value
		}
		data, err := json.Marshal(h)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "id: %s\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
	}
	l.page = eventPage{}
	return nil
}
