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
	// maxListeners is how many streams one process serves.
	maxListeners = 256
	// listenEvery is how often a stream looks for new events.
	listenEvery = 500 * time.Millisecond
	// heartbeatEvery keeps a quiet stream alive, and shows when its client has gone.
	heartbeatEvery = 10 * time.Second
	// listenStepTimeout bounds one look into Postgres.
	listenStepTimeout = 5 * time.Second
	// streamWriteTimeout is how long a client may take for what it is sent.
	streamWriteTimeout = 30 * time.Second
)

// listen streams the organisation's events as they are created or redelivered, for development: it is no substitute for
// an endpoint. A client that was cut off resumes where it was: nothing is left out, and nothing comes again.
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
		webhooks: w, tail: tail, organisation: r.Principal.OrganisationID, caller: r.callerCheck(), slot: slot{admission: r.slot.admission},
	}
	r.SetHeader("Cache-Control", "no-store")
	r.SetHeader("X-Accel-Buffering", "no") // a proxy's
	r.stream(ctx, contentTypeEvents, func(ctx context.Context, out *bufio.Writer, flush func() error) {
		defer func() { <-w.listeners }()
		l.run(ctx, out, flush)
	})
	return nil
}

// lastEventID is where the client's stream was cut off; nil: it begins one.
func lastEventID(r *Request) (*models.WebhookStreamPosition, error) {
	text := r.Header("Last-Event-ID")
	if text == "" {
		return nil, nil //nolint:nilnil // there may be none
	}
	at, err := models.ParseWebhookStreamPosition(text)
	if err != nil {
		return nil, r.RefuseQuery("Last-Event-ID", "must be an id of this stream")
	}
	return &at, nil
}

const contentTypeEvents = "text/event-stream;charset=UTF-8"

// isHead reports whether only the head of the answer is asked for.
func (r *Request) isHead() bool { return r.fast.IsHead() }

// stream answers with what write writes after the handler has returned, until it returns. Its context ends when the
// server begins to shut down; flush sends what was written so far, and fails once the client has gone.
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
			// The server's own time limit is for an answer as a whole.
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

// streamUntilClose is the answer to HTTP/1.0, which knows no chunks: the body ends with the connection.
func (r *Request) streamUntilClose(run func(*bufio.Writer)) {
	const untilClose = -2
	r.fast.Response.Header.SetContentLength(untilClose)
	head := bytes.Clone(r.fast.Response.Header.Header())
	r.fast.HijackSetNoResponse(true)
	r.fast.Hijack(func(c net.Conn) {
		out := bufio.NewWriter(c)
		_, _ = out.Write(head) // the first flush says what came of it
		run(out)
		_ = out.Flush()
	})
}

// webhookListener is one stream.
type webhookListener struct {
	*webhooks
	tail         *models.WebhookTail
	organisation models.OrganisationID
	caller       *callerCheck
	slot         slot // of each look
}

func (l *webhookListener) run(ctx context.Context, out *bufio.Writer, flush func() error) {
	// Without data this dispatches nothing, and a client that is cut off before the first event knows where it was.
	fmt.Fprintf(out, ": listening\nid: %s\n\n", l.tail.Position())
	if flush() != nil {
		return
	}
	look, beat := time.NewTicker(listenEvery), time.NewTicker(heartbeatEvery)
	defer look.Stop()
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if err = l.caller.repeatIfDue(ctx); err == nil {
				err = l.forward(ctx, out, flush)
			}
		case <-beat.C:
			_, _ = out.WriteString(": heartbeat\n\n")
			err = flush()
		}
		if err != nil {
			return
		}
	}
}

// heard is an event on a stream: the request that an endpoint would get.
type heard struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// look reads the next events, and what signs them. No events may mean that they could not be read now: the next look may
// bring more.
func (l *webhookListener) look(ctx context.Context) (
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

// forward sends what has come, page by page.
func (l *webhookListener) forward(ctx context.Context, out *bufio.Writer, flush func() error) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = l.forwardPage(ctx, out, flush); err != nil {
			return err
		}
	}
	return nil
}

func (l *webhookListener) forwardPage(ctx context.Context, out *bufio.Writer, flush func() error) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenStepTimeout)
	defer cancel()
	events, more, secrets, err := l.look(ctx)
	if err != nil || len(events) == 0 {
		return false, err
	}
	for i := range events {
		e := &events[i]
		h := heard{Headers: map[string]string{}, Body: string(e.Body)}
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
