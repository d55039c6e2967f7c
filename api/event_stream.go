package api

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxStreams bounds the open event streams of a process, maxOrganisationStreams those of one
	// organisation.
	maxStreams             = 256
	maxOrganisationStreams = 16
	// streamRetryInterval is the longest time until a failed attempt to read events is repeated.
	streamRetryInterval = 500 * time.Millisecond
	// heartbeatInterval is the time between heartbeats, which keep a quiet stream open and detect a
	// disconnect.
	heartbeatInterval = 10 * time.Second
)

// eventStreams serves streams of server-sent events, and bounds their number.
type eventStreams struct{ limit *heldLimit }

func newEventStreams(cfg Config) *eventStreams {
	return &eventStreams{newHeldLimit(cfg.Metrics, "streams", maxOrganisationStreams, maxStreams)}
}

// eventSource reads the events of one stream page by page. Its methods are called one at a time.
type eventSource interface {
	// position returns the id from which a client resumes after the last page.
	position() string
	// version returns a number that changes when there may be new events, and a channel that is
	// closed when the number changes. While the number is 0, the stream does not read: the source
	// has not looked for events yet.
	version() (number uint64, changed <-chan struct{})
	// read reads the next page of events. count is the number of its events. more says that another
	// page follows. An error leaves the position unchanged.
	read(ctx context.Context) (count int, more bool, err error)
	// write writes the page that was read last.
	write(out *bufio.Writer) error
	// close releases what the source holds.
	close()
}

// serve answers with a stream of the events of a source. It calls open for the source only after
// the stream is admitted, and refuses the stream if too many are open. A HEAD request gets no
// stream.
func (s *eventStreams) serve(ctx context.Context, r *Request, open func() (eventSource, error)) error {
	if r.isHead() {
		return r.Bytes(http.StatusOK, contentTypeEvents, nil)
	}
	release, err := s.limit.acquireStream(r.Principal.OrganisationID)
	if err != nil {
		return err
	}
	source, err := open()
	if err != nil {
		release()
		return err
	}
	caller := r.callerCheck()
	r.SetHeader("Cache-Control", "no-store")
	r.SetHeader("X-Accel-Buffering", "no") // disables the buffer of a proxy
	r.stream(ctx, r.draining, contentTypeEvents, func(ctx context.Context, out *bufio.Writer, flush func() error) {
		defer release()
		defer source.close()
		(&eventStream{source: source, caller: caller, out: out, flush: flush}).run(ctx)
	})
	return nil
}

// eventStream is one open stream.
type eventStream struct {
	source eventSource
	caller *callerCheck
	out    *bufio.Writer
	flush  func() error
	known  uint64 // the version whose events have been sent
	behind bool   // reading has failed, and must be repeated
}

// run sends events until ctx ends, the client disconnects, or the caller loses access.
func (s *eventStream) run(ctx context.Context) {
	// An id without data dispatches no event, but lets a client resume before the first event.
	fmt.Fprintf(s.out, ": listening\nid: %s\n\n", s.source.position())
	if s.flush() != nil {
		return
	}
	heartbeat, check := time.NewTicker(heartbeatInterval), time.NewTimer(s.caller.untilDue())
	defer heartbeat.Stop()
	defer check.Stop()
	for {
		number, changed := s.source.version()
		var err error
		if s.behind || number != s.known {
			s.known = number
			err = s.forward(ctx)
		}
		if err != nil {
			return
		}
		var again <-chan time.Time
		if s.behind {
			again = time.After(streamRetryInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case <-check.C:
			err = s.caller.repeatIfDue(ctx)
			check.Reset(s.caller.untilDue())
		case <-heartbeat.C:
			_, _ = s.out.WriteString(": heartbeat\n\n")
			err = s.flush()
		}
		if err != nil {
			return
		}
	}
}

// forward sends the new events page by page. It repeats the check of the caller before each page,
// because a slow client may take long to read many. An error ends the stream.
func (s *eventStream) forward(ctx context.Context) error {
	s.behind = false
	for more := true; more && ctx.Err() == nil; {
		if err := s.caller.repeatIfDue(ctx); err != nil {
			return err
		}
		count, further, err := s.source.read(ctx)
		if err != nil {
			s.behind = true
			return nil //nolint:nilerr // the events are read again
		}
		if more = further; count == 0 {
			continue
		}
		if err := s.source.write(s.out); err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
	return nil
}

// lastEventID returns the position from which the client resumes: the header Last-Event-ID as parse
// decodes it. It returns nil for a new stream.
func lastEventID[P any](r *Request, parse func(string) (P, error)) (*P, error) {
	text := r.Header("Last-Event-ID")
	if text == "" {
		return nil, nil // the header is optional
	}
	at, err := parse(text)
	if err != nil {
		return nil, RefuseField(InvalidHeader, "Last-Event-ID", "must be an id of this stream")
	}
	return &at, nil
}

// wantsEvents reports whether the client prefers a stream of events to JSON. A client that accepts
// both equally gets JSON.
func (r *Request) wantsEvents() bool {
	return r.acceptWeight("text/event-stream") > r.acceptWeight("application/json")
}

// contentTypeEvents is the Content-Type of server-sent events.
const contentTypeEvents = "text/event-stream;charset=UTF-8"
