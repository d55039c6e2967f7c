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

// ServerConfig says what a Server serves, and to whom.
type ServerConfig struct {
	// Rail carries the requests out.
	Rail Rail
	// Keys may sign requests. Give two for the time in which one replaces the other.
	Keys []SigningKey
	// Faults are what it does wrong from the start.
	Faults Faults
	// WorkTimeout bounds the work on one request, which goes on when the client has left; default 30 s.
	WorkTimeout time.Duration
	// Log takes what goes wrong; default slog.Default.
	Log *slog.Logger
	// Now is the wall clock for signatures; default time.Now.
	Now func() time.Time
}

// Server is an http.Handler that plays a payment gateway: the contract in HTTP.md in front of any Rail, with faults
// on request. Beside the contract it has the fault knobs, signed like everything else:
//
//	GET /faults    the Faults as JSON, with what is left of the counts
//	PUT /faults    replaces them
type Server struct {
	rail        Rail
	secrets     map[string][]byte
	dice        faultDice
	workTimeout time.Duration
	log         *slog.Logger
	now         func() time.Time
	mux         *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// NewServer makes the handler.
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
	// A key may itself be a slash, which {key} would not match.
	mux.Handle("GET /debits/{rest...}", s.operation(opLookup, s.about("", s.rail.Lookup)))
	mux.Handle("POST /debits/{rest...}", s.operation(opCancel, s.about("/cancellation", s.rail.Cancel)))
	mux.Handle("GET /faults", s.signed(s.getFaults))
	mux.Handle("PUT /faults", s.signed(s.putFaults))
	return mux
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// SetFaults replaces the faults and starts their random numbers afresh.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("rail: faults: %w", err)
	}
	s.dice.set(f)
	return nil
}

// signed reads the body and lets only signed requests through.
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

// operation serves one of the contract's requests, and the faults drawn for it. The work goes on when the client has
// left, as a gateway's would.
func (s *Server) operation(op operation, work func(ctx context.Context, r *http.Request, body []byte) reply) http.Handler {
	return s.signed(func(w http.ResponseWriter, r *http.Request, body []byte) {
		f := s.dice.draw(op)
		pause(r.Context(), f.delay)
		switch {
		case f.loseRequest:
			s.hangUp(w, nil)
			return
		case f.unavailable:
			errorReply(http.StatusServiceUnavailable, codeBankUnavailable, "nothing was debited; come again").write(w)
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.workTimeout)
		defer cancel()
		s.answer(w, r, f, work(ctx, r, body))
	})
}

// answer writes the reply, or what a fault makes of it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f fate, rep reply) {
	switch {
	case f.hang > 0:
		pause(r.Context(), f.hang)
		s.hangUp(w, nil)
	case f.loseAnswer:
		s.hangUp(w, nil)
	case f.cutAnswer:
		head := "HTTP/1.1 " + strconv.Itoa(rep.status) + " -\r\nContent-Type: application/json\r\nContent-Length: " +
			strconv.Itoa(len(rep.body)) + "\r\n\r\n"
		s.hangUp(w, append([]byte(head), rep.body[:len(rep.body)/2]...))
	case f.garbage:
		reply{http.StatusOK, bytes.Repeat([]byte{'<', 0, 0xff}, 20)}.write(w)
	case f.failInside:
		errorReply(http.StatusInternalServerError, codeOutcomeUnknown, "something went wrong").write(w)
	default:
		rep.write(w)
	}
}

// hangUp writes raw bytes and closes the connection.
func (s *Server) hangUp(w http.ResponseWriter, last []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.log.Error("rail: cannot hang up on purpose", "error", err)
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
		return s.reply(d.Key, Result{Status: Unavailable, Detail: noTurn})
	}
	return s.ask(d.Key, func(report func(int, Result)) { s.rail.Debit(ctx, []Debit{d}, report) })
}

// about answers a request about the key in its path, which ends in suffix.
func (s *Server) about(suffix string, question func(context.Context, []string, func(int, Result)),
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
			return s.reply(key, Result{Status: Unknown, Detail: noTurn})
		}
		return s.ask(key, func(report func(int, Result)) { question(ctx, []string{key}, report) })
	}
}

// noTurn is why a request was not carried out whose time was over before the rail took it.
const noTurn = "no turn on the rail in time"

func (s *Server) ask(key string, call func(report func(int, Result))) reply {
	var got Result
	call(func(_ int, r Result) { got = r })
	return s.reply(key, got)
}

func (s *Server) reply(key string, got Result) reply {
	if got.Detail != "" {
		s.log.Info("rail: no outcome", "key", key, "status", got.Status.String(), "detail", got.Detail)
	}
	return replyTo(key, got)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request, _ []byte) {
	jsonReply(http.StatusOK, s.dice.get()).write(w)
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

// pause waits, unless the client leaves before.
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
