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

// requestSeries holds the results of hostile requests.
type requestSeries struct {
	sent, refused, before, after *series
	failed, misshapen            int     // of all runs
	answered                     float64 // fraction of the other partner's requests that succeeded afterwards
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
		{Name: "hostile requests: p99 after ÷ p99 before", Value: s.after.median() / s.before.median(),
			Target: -maxHostileRatio},
		{Name: "other partner's requests answered ÷ sent afterwards", Value: s.answered, Target: 1},
	}
}

// hostileResults counts the answers to hostile requests. It is safe for concurrent use.
type hostileResults struct {
	mu                         sync.Mutex
	refused, failed, misshapen int
}

const (
	hostileClients = 32 // concurrent ones
	// hostileAnswerTime bounds the time from a connection to the end of the answer.
	hostileAnswerTime = 30 * time.Second
)

// sendHostile sends n requests, each on a connection of its own. It prints the first few that are
// answered wrongly.
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

// sendRaw sends a request and checks its answer. The status is 0 without an answer.
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
		return answer.StatusCode, nil // it does not end
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err
	}
	return answer.StatusCode, r.checkAnswer(answer, body)
}

// errorAnswer has the fields of the two shapes of errors, that of /checkout and that of all other
// areas, and of RFC 6749.
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

// checkAnswer checks that an error answer has the shape of its area.
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

// in reports whether the target is root or below it.
func (r *hostileRequest) in(root string) bool {
	path, _, _ := strings.Cut(r.target, "?")
	path, _, _ = strings.Cut(path, "#")
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// isPage reports whether the target is one of the pages for people.
func (r *hostileRequest) isPage() bool {
	return r.in("/signup") || r.in("/P") || r.in("/docs") || r.in("/console") || r.target == "/" ||
		strings.HasPrefix(r.target, "/?")
}
