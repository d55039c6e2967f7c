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

// maxSilence is the time without a whole line after which a stream counts as broken. The service
// sends a heartbeat every ten seconds.
const maxSilence = 45 * time.Second

// follow iterates over the events of a stream. It decodes each event into a T, and calls setID with
// its id. It connects again when the stream breaks, and continues after the last event.
func follow[T any](
	ctx context.Context, c *Client, path string, options ListenOptions, setID func(item *T, id string),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		// Each run of the iterator has a reader of its own.
		reader := streamReader[T]{Client: c, path: path, setID: setID, options: options}
		for {
			goOn, err := reader.stream(ctx, yield)
			if !goOn {
				return
			}
			if options.Broken != nil && ctx.Err() == nil {
				options.Broken(err)
			}
			if err = reader.awaitReconnection(ctx, err); err != nil {
				var none T
				yield(none, err)
				return
			}
		}
	}
}

// streamReader is a run of follow.
type streamReader[T any] struct {
	*Client
	path     string
	setID    func(item *T, id string)
	options  ListenOptions // LastID is that of the latest event
	token    string        // of the latest connection
	failures int           // connections that have ended or failed, since the last accepted one on
	renewed  bool          // a token was refused since then
}

// awaitReconnection waits before the next connection. err is the error of the last one, if any.
// awaitReconnection returns an error if the service has refused the stream, or if ctx ends.
func (s *streamReader[T]) awaitReconnection(ctx context.Context, err error) error {
	wait := min(100*time.Millisecond<<min(s.failures, 10), s.cfg.MaxBackoff)
	s.failures++
	var refused *Error
	if errors.As(err, &refused) {
		switch {
		case isTokenRefused(err) && !s.renewed:
			s.renewed = true
			s.forgetToken(s.token)
		case refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError:
			wait = max(wait, min(refused.RetryAfter, s.cfg.MaxBackoff))
		default:
			return err
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("client: stream: %w", ctx.Err())
	case <-time.After(wait):
		return nil
	}
}

// errSilent reports a connection on which nothing has arrived for maxSilence.
var errSilent = fmt.Errorf("client: stream: nothing arrived for %v", maxSilence)

// stream yields the events of one connection. goOn is false if the consumer wants no more of them,
// or after an event that cannot be decoded. Otherwise err says why the connection ended; it is nil
// if the service ended it.
func (s *streamReader[T]) stream(ctx context.Context, yield func(T, error) bool) (goOn bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer cancel(nil)
	defer silence.Stop()
	defer func() {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
	}()
	connection, err := s.openStream(ctx)
	if err != nil {
		return true, err
	}
	defer func() { _ = connection.Body.Close() }()
	s.failures, s.renewed = 0, false
	return s.read(connection.Body, silence, yield)
}

// read yields the events of a stream; see stream for its results. It resets the timer silence
// whenever a line arrives.
func (s *streamReader[T]) read(
	stream io.Reader, silence *time.Timer, yield func(T, error) bool,
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
		case data == "": // an id alone: the position at the start
			s.options.LastID = id
			if !connected && s.options.Connected != nil {
				s.options.Connected(id)
			}
			connected = true
		default: // the end of an event
			var item T
			s.setID(&item, id)
			err := decode("the stream", []byte(data), &item)
			data = ""
			silence.Stop()
			if wanted := yield(item, err) && err == nil; !wanted {
				return false, nil
			}
			silence.Reset(maxSilence)
			s.options.LastID = id
		}
	}
	return true, lines.Err()
}

// openStream connects, and returns a stream that the service has accepted.
func (s *streamReader[T]) openStream(ctx context.Context) (*http.Response, error) {
	var err error
	if s.token, err = s.accessToken(ctx); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.BaseURL+s.path, nil)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept", "text/event-stream")
	if s.options.LastID != "" {
		req.Header.Set("Last-Event-ID", s.options.LastID)
	}
	endless := *s.cfg.HTTP
	endless.Timeout = 0
	resp, err := endless.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: stream: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		return nil, refusal(response{status: resp.StatusCode, header: resp.Header, body: body})
	}
	return resp, nil
}
