package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// hasBody reports whether the request announces a body of a length other than 0.
func (r *Request) hasBody() bool {
	return r.fast.Request.Header.ContentLength() != 0 && r.fast.RequestBodyStream() != nil
}

// hasUnreadBody reports whether the request announces a body that has not been read.
func (r *Request) hasUnreadBody() bool { return r.hasBody() && !r.bodyRead }

// isEmptyBody reports whether a chunked body is empty. It returns false for any other body. It
// waits for the first byte without a slot, and consumes the byte: a body that is not empty must
// then be refused.
func (r *Request) isEmptyBody(ctx context.Context) (bool, error) {
	if r.fast.Request.Header.ContentLength() >= 0 {
		return false, nil
	}
	var first [1]byte
	var err error
	busy := r.withoutSlot(ctx, func() { _, err = io.ReadFull(r.fast.RequestBodyStream(), first[:]) })
	switch {
	case errors.Is(err, io.EOF):
		r.bodyRead = true
		return true, busy
	case err != nil:
		return false, bodyReadError(err)
	}
	return false, busy
}

// errNoBodyMemory means that a body got no memory or no permit to be handled in time, or lost its
// memory to another body. Server.fail does not log it.
var errNoBodyMemory = fmt.Errorf("%w: no memory for the body", errBusy)

const (
	// arrivedBody is the size in bytes up to which fasthttp has read a body before the handler
	// runs. Such a body needs no bytes of a byteSemaphore: connectionCost includes it.
	arrivedBody = 8 << 10
	// Each bodyPart bytes of a larger body must arrive within bodyPartTime. Together they are the
	// minimum rate of a body.
	bodyPart     = 16 << 10
	bodyPartTime = 2 * time.Second
	// giveWayParts is the number of parts of a body after which its reading gives way.
	giveWayParts = 4
)

// readAll reads the request's body. It returns nil if there is none, or if it has been read. It
// refuses a body of more than limit bytes, by the announced length alone if there is one.
//
// A body of unknown length or over arrivedBody first acquires its memory. The request holds no slot
// while such a body arrives, because the client may be slow. If readAll fails, the request may have
// lost its slot.
func (r *Request) readAll(ctx context.Context, limit int) ([]byte, error) {
	stream := r.fast.RequestBodyStream()
	length := r.fast.Request.Header.ContentLength()
	if stream == nil || length == 0 || r.bodyRead {
		return nil, nil
	}
	if length > limit {
		return nil, tooLarge(limit)
	}
	var body []byte
	var err error
	if 0 < length && length <= arrivedBody {
		body = make([]byte, length)
		_, err = io.ReadFull(stream, body)
	} else {
		r.slot.release()
		body, err = r.readArriving(ctx, stream, length, limit)
	}
	switch {
	case errors.Is(err, errNoBodyMemory):
		return nil, noBodyMemory()
	case err != nil:
		return nil, bodyReadError(err)
	case len(body) > limit:
		return nil, tooLarge(limit)
	}
	r.bodyRead = true
	return body, r.slot.reacquire(ctx)
}

// readArriving acquires the memory of a body that has not arrived yet, reads the body, and waits
// until it may be handled. A body of unknown length acquires limit bytes.
func (r *Request) readArriving(ctx context.Context, stream io.Reader, length, limit int) ([]byte, error) {
	size := bufferSize(length)
	if length < 0 {
		size = limit
	}
	connection, _ := r.fast.Conn().(*conn) // nil for a request of the console
	semaphore, caller := r.server.bodies.semaphoreOf(r, size)
	var err error
	if r.lease, err = semaphore.acquire(ctx, caller, int64(size), connection.abortRead); err != nil {
		return nil, err
	}
	body, err := r.readAdmitted(stream, connection, length, limit)
	if isTimeout(err) {
		semaphore.metrics.slow.Inc()
	}
	if err != nil {
		return nil, err
	}
	if len(body) > smallBody {
		r.giveWay()
	}
	return body, r.server.bodies.handle(ctx, r, len(body))
}

// readAdmitted reads a body whose memory is acquired. Only during this read may the connTable close
// the connection: before and after it, the request waits for the server, not for the client.
// readAdmitted returns errNoBodyMemory if the body was aborted for another one.
func (r *Request) readAdmitted(stream io.Reader, connection *conn, length, limit int) (body []byte, err error) {
	connection.beginBody()
	defer connection.endBody()
	parts := 0
	beginPart := func() {
		if parts++; parts > 1 && parts%giveWayParts == 1 { // the reads of a fast client never wait
			r.giveWay()
		}
		connection.beginPart()
	}
	if length < 0 {
		body, err = readUnknown(stream, limit, beginPart)
	} else {
		body = r.newBody(length)
		if _, err = readParts(stream, body, beginPart); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if !r.lease.complete(max(len(body), cap(r.buffer))) {
		return nil, errNoBodyMemory
	}
	return body, err
}

// readParts reads until the buffer is full, and calls beginPart before each bodyPart bytes. It
// returns io.EOF if the stream ends first.
func readParts(stream io.Reader, body []byte, beginPart func()) (n int, err error) {
	for part := 0; n < len(body) && err == nil; {
		if n >= part {
			beginPart()
			part = n + bodyPart
		}
		var read int
		read, err = stream.Read(body[n:min(part, len(body))])
		n += read
	}
	if n == len(body) && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// giveWay lets the requests run that other callers have sent meanwhile. Requests call it between
// the steps of long work. It does nothing unless other callers are active.
//
// runtime.Gosched would not suffice: while the scheduler has goroutines to run, it polls the
// network only every 10 ms.
func (r *Request) giveWay() {
	if r.server.admission.hasOthers(r.slot.caller) {
		time.Sleep(50 * time.Microsecond) //nolint:forbidigo // there is no event to wait for
	}
}

// readUnknown reads a body of unknown length. It reads at most one byte more than the limit, by
// which the caller detects a larger body.
func readUnknown(stream io.Reader, limit int, beginPart func()) ([]byte, error) {
	var body []byte
	for filled := 0; filled == len(body) && filled <= limit; {
		body = append(body, make([]byte, min(max(bodyPart, len(body)), limit+1-len(body)))...)
		n, err := readParts(stream, body[filled:], beginPart)
		filled += n
		if errors.Is(err, io.EOF) {
			return body[:filled], nil
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// tooLarge refuses a body of more than limit bytes.
func tooLarge(limit int) error {
	e := Refuse(BodyTooLarge, "")
	e.Faults[0].Message = fmt.Sprintf("The body must have at most %d bytes.", limit)
	e.Close = true
	return e
}

// bodyReadError refuses a body that arrived too slowly or with broken framing.
func bodyReadError(err error) error {
	if isTimeout(err) {
		return unreadable(RequestTimeout, err)
	}
	return unreadable(MalformedRequest, err)
}

// isTimeout reports whether a read ended at its deadline.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// noBodyMemory returns the 503 for a body that got no memory or no permit.
func noBodyMemory() *Error {
	e := unreadable(Unavailable, errNoBodyMemory)
	e.RetryAfter = retryUnavailable
	return e
}

// unreadable returns a refusal that also closes the connection, because a part of the request may
// be unread.
func unreadable(code Code, cause error) *Error {
	e := Refuse(code, "")
	e.Cause, e.Close = cause, true
	return e
}
