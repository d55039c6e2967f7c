package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"partnerbilling/models"
)

const (
	// maxListeners bounds the streams of one process, and maxOrganisationListeners those of an
	// organisation.
	maxListeners             = 256
	maxOrganisationListeners = 16
	// listenInterval is the time between two looks for new events, which an organisation's streams
	// share, and between two attempts of a query that fails.
	listenInterval = 500 * time.Millisecond
	// heartbeatInterval is the time between heartbeats, which keep a quiet stream open and detect a
	// disconnect.
	heartbeatInterval = 10 * time.Second
	// listenStepTimeout bounds one query.
	listenStepTimeout = 5 * time.Second
	// streamWriteTimeout bounds one write to the client.
	streamWriteTimeout = 30 * time.Second
)

// listen streams the organisation's events as they are created or redelivered. It serves
// development and does not replace an endpoint. A client that reconnects with Last-Event-ID gets
// each later event exactly once.
func (w *webhooks) listen(ctx context.Context, r *Request) error {
	after, err := lastEventID(r)
	if err != nil {
		return err
	}
	if r.isHead() {
		return r.Bytes(http.StatusOK, contentTypeEvents, nil)
	}
	release, err := w.listeners.acquire(r.Principal.OrganisationID)
	if err != nil {
		return err
	}
	tail, err := w.store.TailWebhooks(ctx, r.Principal.OrganisationID, after)
	if err != nil {
		release()
		return err
	}
	watch, leave := w.watches.join(r, r.Principal.OrganisationID)
	l := &webhookListener{
		webhooks: w, watch: watch, tail: tail, organisation: r.Principal.OrganisationID, caller: r.callerCheck(),
		slot: slot{admission: r.slot.admission, caller: callerOf(&r.Principal)},
	}
	r.SetHeader("Cache-Control", "no-store")
	r.SetHeader("X-Accel-Buffering", "no") // disables the buffer of a proxy
	r.stream(ctx, contentTypeEvents, func(ctx context.Context, out *bufio.Writer, flush func() error) {
		defer release()
		defer leave()
		l.run(ctx, out, flush)
	})
	return nil
}

// lastEventID returns the position from which the client resumes, nil for a new stream.
func lastEventID(r *Request) (*models.WebhookStreamPosition, error) {
	text := r.Header("Last-Event-ID")
	if text == "" {
		return nil, nil // the header is optional
	}
	at, err := models.ParseWebhookStreamPosition(text)
	if err != nil {
		return nil, RefuseField(InvalidHeader, "Last-Event-ID", "must be an id of this stream")
	}
	return &at, nil
}

const contentTypeEvents = "text/event-stream;charset=UTF-8"

// isHead reports whether the method is HEAD.
func (r *Request) isHead() bool { return r.fast.IsHead() }

// stream answers with the output of write, which runs after the handler has returned. The context
// of write ends when the client disconnects or the server begins to shut down. flush sends the
// buffered output and fails once the client has disconnected.
func (r *Request) stream(
	ctx context.Context, contentType string, write func(ctx context.Context, out *bufio.Writer, flush func() error),
) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(r.draining, cancel)
	connection := r.fast.Conn()
	watch := func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	if c, ok := connection.(*conn); ok && (!r.hasBody() || r.bodyRead) {
		watch = c.watch
	}
	response := &r.fast.Response
	response.SetStatusCode(http.StatusOK)
	response.Header.SetContentType(contentType)
	run := func(out *bufio.Writer) {
		defer stop()
		defer cancel()
		ctx, stopWatching := watch(ctx)
		defer stopWatching()
		write(ctx, out, func() error {
			// The server's write time-out would end the stream as a whole.
			if err := connection.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
				return err
			}
			return out.Flush()
		})
	}
	if r.fast.Request.Header.IsHTTP11() {
		response.SetBodyStreamWriter(run)
		return
	}
	r.streamUntilClose(run)
}

// streamUntilClose streams to an HTTP/1.0 client, which knows no chunks: the body ends with the
// connection.
func (r *Request) streamUntilClose(run func(*bufio.Writer)) {
	const untilClose = -2
	r.fast.Response.Header.SetContentLength(untilClose)
	head := bytes.Clone(r.fast.Response.Header.Header())
	r.fast.HijackSetNoResponse(true)
	r.fast.Hijack(func(c net.Conn) {
		out := bufio.NewWriter(c)
		_, _ = out.Write(head) // run's first flush returns the error
		run(out)
		_ = out.Flush()
	})
}

// webhookListener serves one stream.
type webhookListener struct {
	*webhooks
	watch        *watch[models.WebhookStreamPosition]
	tail         *models.WebhookTail
	organisation models.OrganisationID
	caller       *callerCheck
	slot         slot // held during each query
}

func (l *webhookListener) run(ctx context.Context, out *bufio.Writer, flush func() error) {
	// An id without data dispatches no event, but lets a client resume before the first event.
	fmt.Fprintf(out, ": listening\nid: %s\n\n", l.tail.Position())
	if flush() != nil {
		return
	}
	heartbeat, check := time.NewTicker(heartbeatInterval), time.NewTimer(l.caller.untilDue())
	defer heartbeat.Stop()
	defer check.Stop()
	var known uint64 // the sighting whose events have been sent
	behind := false
	for {
		seen, changed := l.watch.current()
		var err error
		if behind || seen.number != known {
			known = seen.number
			behind, err = l.forward(ctx, out, flush)
		}
		if err != nil {
			return
		}
		var again <-chan time.Time
		if behind {
			again = time.After(listenInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case <-check.C:
			err = l.caller.repeatIfDue(ctx)
			check.Reset(l.caller.untilDue())
		case <-heartbeat.C:
			_, _ = out.WriteString(": heartbeat\n\n")
			err = flush()
		}
		if err != nil {
			return
		}
	}
}

// streamedRequest is an event on a stream: the request that an endpoint would get.
type streamedRequest struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// forward sends the new events page by page. It repeats the check of the caller before each page,
// because a slow client may take long to read many. behind says that a query failed, and must be
// made again; an error ends the stream.
func (l *webhookListener) forward(
	ctx context.Context, out *bufio.Writer, flush func() error,
) (behind bool, err error) {
	for more := true; more && ctx.Err() == nil; {
		if err := l.caller.repeatIfDue(ctx); err != nil {
			return false, err
		}
		page, err := l.nextPage(ctx)
		if err != nil {
			return true, nil //nolint:nilerr // the query is made again
		}
		if len(page.events) == 0 {
			return false, nil
		}
		if err := l.send(out, page); err != nil {
			return false, err
		}
		if err := flush(); err != nil {
			return false, err
		}
		more = page.more
	}
	return false, nil
}

// eventPage is a page of events, and the secrets that sign them.
type eventPage struct {
	events  []models.WebhookStreamed
	more    bool
	secrets models.WebhookSecrets
}

// nextPage reads the next events. If it fails, the position stays as it is.
func (l *webhookListener) nextPage(ctx context.Context) (page eventPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenStepTimeout)
	defer cancel()
	if err := l.slot.acquire(ctx, true); err != nil {
		return page, err
	}
	defer l.slot.release()
	page.secrets, err = l.store.WebhookSecrets(ctx, l.keys.Keyring(), l.organisation)
	if err != nil && !errors.Is(err, models.ErrNoWebhookSecret) {
		return page, err
	}
	page.events, page.more, err = l.tail.Next(ctx)
	return page, err
}

// send writes a page of events.
func (l *webhookListener) send(out *bufio.Writer, page eventPage) error {
	for i := range page.events {
		e := &page.events[i]
		h := streamedRequest{Headers: map[string]string{}, Body: string(e.Body)}
		for _, header := range page.secrets.Sign(&e.WebhookEvent, l.now(), max(1, e.Attempts)) {
			h.Headers[header.Name] = header.Value
		}
		data, err := json.Marshal(h)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "id: %s\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
	}
	return nil
}
