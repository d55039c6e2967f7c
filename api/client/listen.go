package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

// maxSilence is the time without a byte after which a stream is taken for broken. The service sends
// a heartbeat every ten seconds.
const maxSilence = 45 * time.Second

// Delivery is a webhook as an endpoint would receive it.
type Delivery struct {
	ID      string            `json:"-"` // for a later ListenFrom
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Listen streams the organisation's webhooks for development, without an endpoint. It reconnects
// when the stream breaks, and continues after the last delivery. It ends with an error when ctx
// ends, or when the service refuses the stream.
func (c *Client) Listen(ctx context.Context) iter.Seq2[Delivery, error] { return c.ListenFrom(ctx, "") }

// ListenFrom is Listen that continues after a delivery of the last 24 hours.
func (c *Client) ListenFrom(ctx context.Context, lastID string) iter.Seq2[Delivery, error] {
	return c.ListenWith(ctx, ListenOptions{LastID: lastID})
}

// ListenOptions configures ListenWith. Its functions are called in the goroutine of the iteration,
// and may be nil.
type ListenOptions struct {
	LastID string // continue after this delivery or position of the last 24 hours; "": from now
	// Connected is called when a connection begins, with the stream's position: the LastID with
	// which a later call continues there.
	Connected func(position string)
	// Broken is called when a connection has ended or failed, before the client connects again.
	Broken func(err error)
}

// ListenWith is Listen with options.
func (c *Client) ListenWith(ctx context.Context, options ListenOptions) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		listener := listener{Client: c, options: options} // an iterator may run more than once
		for {
			goOn, err := listener.stream(ctx, yield)
			if !goOn {
				return
			}
			if options.Broken != nil && ctx.Err() == nil {
				options.Broken(err)
			}
			if err = listener.awaitReconnection(ctx, err); err != nil {
				yield(Delivery{}, err)
				return
			}
		}
	}
}

// listener is a run of ListenWith.
type listener struct {
	*Client
	options  ListenOptions // LastID moves along
	token    string        // of the latest connection
	failures int           // since the service last accepted a connection
	renewed  bool          // a token was refused since then
}

// awaitReconnection waits before the next connection. It returns an error if there must be none.
func (l *listener) awaitReconnection(ctx context.Context, err error) error {
	wait := min(100*time.Millisecond<<min(l.failures, 10), l.cfg.MaxBackoff)
	l.failures++
	var refused *Error
	if errors.As(err, &refused) {
		switch {
		case isTokenRefused(err) && !l.renewed:
			l.renewed = true
			l.forgetToken(l.token)
		case refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError:
			wait = max(wait, min(refused.RetryAfter, l.cfg.MaxBackoff))
		default:
			return err
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("client: listen: %w", ctx.Err())
	case <-time.After(wait):
		return nil
	}
}

// errSilent reports a connection on which nothing has arrived for maxSilence.
var errSilent = fmt.Errorf("client: listen: nothing arrived for %v", maxSilence)

// stream yields the deliveries of one connection. It returns false if the caller wants no more.
func (l *listener) stream(ctx context.Context, yield func(Delivery, error) bool) (goOn bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer cancel(nil)
	defer silence.Stop()
	defer func() {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
	}()
	connection, err := l.openStream(ctx)
	if err != nil {
		return true, err
	}
	defer func() { _ = connection.Body.Close() }()
	l.failures, l.renewed = 0, false
	return l.read(connection.Body, silence, yield)
}

// read yields the deliveries of a stream. It resets the timer silence whenever something arrives.
func (l *listener) read(
	stream io.Reader, silence *time.Timer, yield func(Delivery, error) bool,
) (goOn bool, err error) {
	silence.Reset(maxSilence)
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	var id, data string
	connected := false
	for lines.Scan() {
		silence.Reset(maxSilence)
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case lines.Text() != "" || id == "": // another field, a comment, or the end of a comment
		case data == "": // the position at the start
			l.options.LastID = id
			if !connected && l.options.Connected != nil {
				l.options.Connected(id)
			}
			connected = true
		default: // the end of an event
			delivery := Delivery{ID: id}
			err := decode("the stream", []byte(data), &delivery)
			data = ""
			silence.Stop()
			if wanted := yield(delivery, err) && err == nil; !wanted {
				return false, nil
			}
			silence.Reset(maxSilence)
			l.options.LastID = id
		}
	}
	return true, lines.Err()
}

// openStream connects, and returns a stream that the service has accepted.
func (l *listener) openStream(ctx context.Context) (*http.Response, error) {
	var err error
	if l.token, err = l.accessToken(ctx); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.cfg.BaseURL+"/webhooks/listen", nil)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	if l.options.LastID != "" {
		req.Header.Set("Last-Event-ID", l.options.LastID)
	}
	endless := *l.cfg.HTTP
	endless.Timeout = 0
	resp, err := endless.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: listen: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		return nil, refusal(response{status: resp.StatusCode, header: resp.Header, body: body})
	}
	return resp, nil
}
