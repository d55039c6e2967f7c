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
	// maxListeners bounds the streams of one process.
	maxListeners = 256
	// listenInterval is the time between two queries of a stream.
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
	tail, err := w.store.TailWebhooks(ctx, r.Principal.OrganisationID, after)
	if err != nil {
		return err
	}
	if r.isHead() {
		return r.Bytes(http.StatusOK, contentTypeEvents, nil)
	}
	select {
	case w.listeners <- struct{}{}:
	default:
		e := Refuse(Unavailable, "")
		e.RetryAfter = retryUnavailable
		return e
	}
	l := &webhookListener{
		webhooks: w, tail: tail, organisation: r.Principal.OrganisationID, caller: r.callerCheck(),
		slot: slot{admission: r.slot.admission},
	}
	r.SetHeader("Cache-Control", "no-store")
	r.SetHeader("X-Accel-Buffering", "no") // disables the buffer of a proxy
	r.stream(ctx, contentTypeEvents, func(ctx context.Context, out *bufio.Writer, flush func() error) {
		defer func() { <-w.listeners }()
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
// of write ends when the server begins to shut down. flush sends the buffered output and fails once
// the client has disconnected.
func (r *Request) stream(
	ctx context.Context, contentType string, write func(ctx context.Context, out *bufio.Writer, flush func() error),
) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(r.draining, cancel)
	connection := r.fast.Conn()
	response := &r.fast.Response
	response.SetStatusCode(http.StatusOK)
	response.Header.SetContentType(contentType)
	run := func(out *bufio.Writer) {
		defer stop()
		defer cancel()
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
	poll, heartbeat := time.NewTicker(listenInterval), time.NewTicker(heartbeatInterval)
	defer poll.Stop()
	defer heartbeat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if err = l.caller.repeatIfDue(ctx); err == nil {
				err = l.forward(ctx, out, flush)
			}
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

// query reads the next events and the secrets that sign them. It returns no events if none are new
// or the query failed; the next query catches up.
func (l *webhookListener) query(ctx context.Context) (
	events []models.WebhookStreamed, more bool, secrets models.WebhookSecrets, err error,
) {
	if l.slot.acquire(ctx, true) != nil {
		return nil, false, secrets, nil
	}
	defer l.slot.release()
	if events, more, err = l.tail.Next(ctx); err != nil || len(events) == 0 {
		return nil, false, secrets, nil
	}
	secrets, err = l.store.WebhookSecrets(ctx, l.keys.Keyring(), l.organisation)
	if errors.Is(err, models.ErrNoWebhookSecret) {
		err = nil
	}
	return events, more, secrets, err
}

// forward sends the new events page by page.
func (l *webhookListener) forward(ctx context.Context, out *bufio.Writer, flush func() error) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = l.forwardPage(ctx, out, flush); err != nil {
			return err
		}
	}
	return nil
}

func (l *webhookListener) forwardPage(
	ctx context.Context, out *bufio.Writer, flush func() error,
) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenStepTimeout)
	defer cancel()
	events, more, secrets, err := l.query(ctx)
	if err != nil || len(events) == 0 {
		return false, err
	}
	for i := range events {
		e := &events[i]
		h := streamedRequest{Headers: map[string]string{}, Body: string(e.Body)}
		for _, header := range secrets.Sign(&e.WebhookEvent, l.now(), max(1, e.Attempts)) {
			h.Headers[header.Name] = header.Value
		}
		data, err := json.Marshal(h)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(out, "id: %s\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
	}
	return more, flush()
}
