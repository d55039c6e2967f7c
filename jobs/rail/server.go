package rail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"partnerbilling/models"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Rail carries out the requests.
	Rail Rail
	// Keys are the keys that may sign requests. During a rotation there are two.
	Keys []SigningKey
	// Faults are the faults to inject from the start.
	Faults Faults
	// WorkTimeout bounds the work on one request; default 30 s. The work goes on after the client
	// has disconnected.
	WorkTimeout time.Duration
	// Log defaults to slog.Default.
	Log *slog.Logger
	// Now is the wall clock for signatures; default time.Now.
	Now func() time.Time
}

// Server is an http.Handler that simulates a payment gateway: it serves the contract in HTTP.md
// from any Rail, and injects faults. It also serves the settings of the faults. Requests for them
// must be signed as well:
//
//	GET /faults    the Faults as JSON, with the remaining counts
//	PUT /faults    replaces them
type Server struct {
	rail        Rail
	secrets     map[string][]byte
	injector    faultInjector
	workTimeout time.Duration
	log         *slog.Logger
	now         func() time.Time
	mux         *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// NewServer returns a Server. It refuses an invalid signing key or invalid faults.
func NewServer(cfg ServerConfig) (*Server, error) {
	s := &Server{
		rail: cfg.Rail, secrets: make(map[string][]byte), workTimeout: cfg.WorkTimeout, log: cfg.Log, now: cfg.Now,
	}
	for _, k := range cfg.Keys {
		if !validKeyID(k.ID) || len(k.Secret) == 0 {
			return nil, errors.New("rail: signing key without a valid id or a secret")
		}
		s.secrets[k.ID] = k.Secret
	}
	if s.workTimeout <= 0 {
		s.workTimeout = 30 * time.Second
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.SetFaults(cfg.Faults); err != nil {
		return nil, err
	}
	s.mux = s.routes()
	return s, nil
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /debits", s.operation(opDebit, s.debit))
	mux.Handle("GET /debits", s.operation(opList, s.list))
	// The patterns use {rest...}, because {key} would not match the valid key "/".
	mux.Handle("GET /debits/{rest...}", s.operation(opLookup, s.byKey("", s.rail.Lookup)))
	mux.Handle("POST /debits/{rest...}", s.operation(opCancel, s.byKey("/cancellation", s.rail.Cancel)))
	mux.Handle("GET /faults", s.signed(s.getFaults))
	mux.Handle("PUT /faults", s.signed(s.putFaults))
	return mux
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// SetFaults replaces the faults and restarts their random numbers. It refuses values that are out
// of range.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("rail: faults: %w", err)
	}
	s.injector.set(f)
	return nil
}

// signed reads the body of each request and calls next if the signature is valid.
func (s *Server) signed(next func(w http.ResponseWriter, r *http.Request, body []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var tooLong *http.MaxBytesError
		switch {
		case errors.As(err, &tooLong):
			errorReply(http.StatusRequestEntityTooLarge, codeInvalidRequest, "the body is too long").write(w)
		case err != nil:
			errorReply(http.StatusBadRequest, codeOutcomeUnknown, "the body did not arrive whole").write(w)
		case verifySignature(r, body, s.secrets, s.now()) != nil:
			errorReply(http.StatusUnauthorized, codeInvalidSignature, "the signature does not hold").write(w)
		default:
			next(w, r, body)
		}
	})
}

// operation serves one operation of the contract, with the faults drawn for it. The work goes on
// after the client has disconnected, as in a real gateway.
func (s *Server) operation(
	op operation, work func(ctx context.Context, r *http.Request, body []byte) reply,
) http.Handler {
	return s.signed(func(w http.ResponseWriter, r *http.Request, body []byte) {
		f := s.injector.draw(op)
		pause(r.Context(), f.delay)
		switch {
		case f.loseRequest:
			s.disconnect(w, nil)
			return
		case f.unavailable:
			replyTo("", Result{Status: Unavailable}).write(w)
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.workTimeout)
		defer cancel()
		s.answer(w, r, f, work(ctx, r, body))
	})
}

// answer writes the reply, or lets the first of the drawn faults replace or damage it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f drawnFaults, rep reply) {
	switch {
	case f.hang > 0:
		pause(r.Context(), f.hang)
		s.disconnect(w, nil)
	case f.loseAnswer:
		s.disconnect(w, nil)
	case f.cutAnswer:
		head := "HTTP/1.1 " + strconv.Itoa(rep.status) + " -\r\nContent-Type: application/json\r\nContent-Length: " +
			strconv.Itoa(len(rep.body)) + "\r\n\r\n"
		s.disconnect(w, append([]byte(head), rep.body[:len(rep.body)/2]...))
	case f.garbage:
		reply{http.StatusOK, bytes.Repeat([]byte{'<', 0, 0xff}, 20)}.write(w)
	case f.internalFail:
		errorReply(http.StatusInternalServerError, codeOutcomeUnknown, "something went wrong").write(w)
	default:
		rep.write(w)
	}
}

// disconnect writes the last raw bytes and closes the connection.
func (s *Server) disconnect(w http.ResponseWriter, last []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.log.Error("rail: cannot close the connection for a fault", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = conn.Write(last)
	_ = conn.Close()
}

func (s *Server) debit(ctx context.Context, _ *http.Request, body []byte) reply {
	var b debitBody
	if err := json.Unmarshal(body, &b); err != nil {
		return errorReply(http.StatusBadRequest, codeInvalidRequest, "the body is not readable")
	}
	d := Debit(b)
	if err := d.Validate(); err != nil {
		return errorReply(http.StatusBadRequest, codeInvalidRequest, err.Error())
	}
	if s.rail.Admit(ctx, d.OrganisationID, 1) == 0 {
		return s.reply(d.Key, Result{Status: Unavailable, Detail: notAdmitted})
	}
	return s.call(d.Key, func(report func(int, Result)) { s.rail.Debit(ctx, []Debit{d}, report) })
}

// byKey returns the work for requests to /debits/{key}{suffix}. do makes the call on the rail.
func (s *Server) byKey(suffix string, do func(context.Context, []string, func(int, Result)),
) func(context.Context, *http.Request, []byte) reply {
	return func(ctx context.Context, r *http.Request, _ []byte) reply {
		segment, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.EscapedPath(), "/debits/"), suffix)
		if !ok || strings.Contains(segment, "/") {
			return errorReply(http.StatusNotFound, codeInvalidRequest, "there is no such path")
		}
		key, err := url.PathUnescape(segment)
		if err == nil {
			err = ValidateKey(key)
		}
		if err != nil {
			return errorReply(http.StatusBadRequest, codeInvalidRequest, "the path holds no valid key")
		}
		if s.rail.Admit(ctx, models.OrganisationID{}, 1) == 0 {
			return s.reply(key, Result{Status: Unknown, Detail: notAdmitted})
		}
		return s.call(key, func(report func(int, Result)) { do(ctx, []string{key}, report) })
	}
}

func (s *Server) list(ctx context.Context, r *http.Request, _ []byte) reply {
	q, err := parseListQuery(r.URL.RawQuery)
	if err != nil {
		return errorReply(http.StatusBadRequest, codeInvalidRequest, err.Error())
	}
	if s.rail.Admit(ctx, models.OrganisationID{}, 1) == 0 {
		return errorReply(http.StatusServiceUnavailable, codeBankUnavailable, notAdmitted)
	}
	page, err := s.rail.List(ctx, q)
	if err != nil {
		s.log.Info("rail: no list", "error", err)
		return errorReply(http.StatusServiceUnavailable, codeBankUnavailable, "the list is not available now")
	}
	return listReply(page)
}

// notAdmitted is the detail of a request that timed out before the rail admitted it.
const notAdmitted = "the rail did not admit the request in time"

// call makes a rail call with one item and returns the reply to it.
func (s *Server) call(key string, do func(report func(int, Result))) reply {
	var got Result
	do(func(_ int, r Result) { got = r })
	return s.reply(key, got)
}

// reply returns the reply that carries a result, and logs a result with a detail.
func (s *Server) reply(key string, got Result) reply {
	if got.Detail != "" {
		s.log.Info("rail: exceptional answer", "key", key, "status", got.Status.String(), "detail", got.Detail)
	}
	return replyTo(key, got)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request, _ []byte) {
	jsonReply(http.StatusOK, s.injector.get()).write(w)
}

func (s *Server) putFaults(w http.ResponseWriter, _ *http.Request, body []byte) {
	var f Faults
	if err := json.Unmarshal(body, &f, json.RejectUnknownMembers(true)); err != nil {
		errorReply(http.StatusBadRequest, codeInvalidRequest, "the body is not readable").write(w)
		return
	}
	if err := s.SetFaults(f); err != nil {
		errorReply(http.StatusBadRequest, codeInvalidRequest, err.Error()).write(w)
		return
	}
	jsonReply(http.StatusOK, f).write(w)
}

// pause waits for d, or until the client disconnects.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
