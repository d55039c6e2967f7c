package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// requestSeries holds the results of hostile requests over all runs; newRequestSeries names the
// series. failed and misshapen are counts as in hostileResults. answered is the smallest fraction
// of the other partner's requests that succeeded after the hostile ones.
type requestSeries struct {
	sent, refused, before, after *series
	failed, misshapen            int
	answered                     float64
}

func newRequestSeries() *requestSeries {
	return &requestSeries{
		sent:    &series{Name: "hostile requests, all distinct", Unit: "requests"},
		refused: &series{Name: "hostile requests refused with 4xx", Unit: "requests"},
		before:  &series{Name: "hostile requests: p99 before", Unit: "ms"},
		after:   &series{Name: "hostile requests: p99 after", Unit: "ms"}, answered: 1,
	}
}

func (s *requestSeries) series() []*series { return []*series{s.sent, s.refused, s.before, s.after} }

func (s *requestSeries) ratios() []ratio {
	sent := 0.0
	for _, n := range s.sent.Values {
		sent += n
	}
	return []ratio{
		{Name: "hostile requests answered without 5xx ÷ sent", Value: 1 - float64(s.failed)/sent, Target: 1},
		{Name: "hostile requests answered in the shape of their area ÷ sent", Value: 1 - float64(s.misshapen)/sent,
			Target: 1},
		medianRatio("hostile requests: p99 after ÷ p99 before", s.after, s.before, -maxHostileRatio),
		{Name: "other partner's requests answered ÷ sent afterwards", Value: s.answered, Target: 1},
	}
}

// hostileResults counts the answers to hostile requests. refused ones have a 4xx in the right
// shape. failed ones have a 5xx or no answer. misshapen ones have an error in a wrong shape, or an
// incomplete answer. Its method add is safe for concurrent use.
type hostileResults struct {
	mu                         sync.Mutex
	refused, failed, misshapen int
}

const (
	// hostileClients is the number of clients that send hostile requests concurrently.
	hostileClients = 32
	// hostileAnswerTime bounds the time from the opening of a connection to the end of the answer.
	hostileAnswerTime = 30 * time.Second
)

// sendHostile sends n requests to the address, each on a connection of its own, and counts the
// answers. It prints the first few wrong answers to standard error.
func sendHostile(ctx context.Context, address string, maker *requestMaker, n int) (*hostileResults, error) {
	results := &hostileResults{}
	requests := make(chan hostileRequest)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(requests)
		for range n {
			select {
			case requests <- maker.next():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range hostileClients {
		group.Go(func() error {
			for r := range requests {
				status, err := sendRaw(ctx, address, &r)
				results.add(&r, status, err)
			}
			return nil
		})
	}
	return results, group.Wait()
}

// add counts an answer with its status and the error of sendRaw.
func (s *hostileResults) add(r *hostileRequest, status int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case status >= http.StatusInternalServerError || status == 0:
		s.failed++
	case err != nil:
		s.misshapen++
	case status >= http.StatusBadRequest:
		s.refused++
	}
	const shown = 5
	if (err != nil || status >= http.StatusInternalServerError) && s.failed+s.misshapen <= shown {
		text := r.text()
		fmt.Fprintf(os.Stderr, "status %d, %v: %.600q\n", status, err, text)
	}
}

// sendRaw sends a request and checks its answer. The status is 0 without an answer. The error says
// why there is no complete answer, or why its shape is wrong.
func sendRaw(ctx context.Context, address string, r *hostileRequest) (status int, err error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(hostileAnswerTime)); err != nil {
		return 0, err
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, r.text()) // the service may refuse the rest
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
	}()
	defer func() { <-sent }()
	reader := bufio.NewReader(c)
	answer, err := http.ReadResponse(reader, &http.Request{Method: r.method})
	for err == nil && answer.StatusCode == http.StatusContinue {
		answer, err = http.ReadResponse(reader, &http.Request{Method: r.method})
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return answer.StatusCode, nil // a stream does not end
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err
	}
	return answer.StatusCode, r.checkAnswer(answer, body)
}

// errorAnswer has the fields of all shapes of errors: that of the area /checkout, that of the other
// areas, and that of RFC 6749 for tokens.
type errorAnswer struct {
	Errors []struct {
		Code           string `json:"code"`
		DisplayMessage string `json:"displayMessage"`
		Message        string `json:"message"`
	} `json:"errors"`
	TraceID   string `json:"traceId"`
	Timestamp int64  `json:"timestamp"`
	Error     string `json:"error"`
}

var (
	traceIDPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)
	codePattern    = regexp.MustCompile(`^urn:svc:platform:billing:error:[a-z]+:[a-z-]+$`)

	errShape = errors.New("not in the shape of its area")
)

// checkAnswer returns errShape if an answer is an error, but does not have the shape of its area.
func (r *hostileRequest) checkAnswer(answer *http.Response, body []byte) error {
	if answer.StatusCode < http.StatusBadRequest || r.method == http.MethodHead {
		return nil
	}
	contentType := answer.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, "text/html") && (r.html || r.isPage()) {
		return nil
	}
	var e errorAnswer
	if err := json.Unmarshal(body, &e); err != nil || !strings.HasPrefix(contentType, "application/json") {
		return fmt.Errorf("%w: %s: %.200s", errShape, contentType, body)
	}
	if e.Error != "" && r.in("/oauth2") {
		return nil
	}
	if len(e.Errors) == 0 || !traceIDPattern.MatchString(e.TraceID) {
		return fmt.Errorf("%w: %.200s", errShape, body)
	}
	for _, fault := range e.Errors {
		isGeneral := codePattern.MatchString(fault.Code) && fault.DisplayMessage != "" && e.Timestamp == 0
		isCheckout := fault.Code == "" && fault.Message != "" && e.Timestamp > 0
		if isCheckout != r.in("/checkout") || !isGeneral && !isCheckout {
			return fmt.Errorf("%w: %.200s", errShape, body)
		}
	}
	return nil
}

// in reports whether the path of the target is root or below it.
func (r *hostileRequest) in(root string) bool {
	path, _, _ := strings.Cut(r.target, "?")
	path, _, _ = strings.Cut(path, "#")
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// isPage reports whether the target belongs to the pages for people, whose errors are HTML.
func (r *hostileRequest) isPage() bool {
	return r.in("/signup") || r.in("/P") || r.in("/docs") || r.in("/console") || r.target == "/" ||
		strings.HasPrefix(r.target, "/?")
}
