package api

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"partnerbilling/api/requestlog"
	"partnerbilling/models"
)

// loggedRequestsPath is the route of the request log. Its own requests are not logged.
const loggedRequestsPath = "/sandbox/requests"

const (
	// defaultLoggedRequests is the length of the list unless the client asks for another one.
	defaultLoggedRequests = 100
	// loggedRequestPage is the number of requests that a stream sends at once.
	loggedRequestPage = 100
)

// loggedRequests handles the route of the sandbox's request log. The log holds the requests of this
// process alone.
type loggedRequests struct {
	log     *requestlog.Log
	streams *eventStreams
	now     func() time.Time
}

// loggedRequestData is a logged request on the wire. It has neither headers nor bodies.
type loggedRequestData struct {
	TraceID    models.TraceID  `json:"traceId"`
	At         models.Millis   `json:"at"`
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Route      string          `json:"route"`
	Status     int             `json:"status"`
	DurationMs int64           `json:"durationMs"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	ClientID   models.ClientID `json:"clientId"`
	Console    bool            `json:"console,omitempty"`
}

func describeLoggedRequest(e *requestlog.LoggedRequest) loggedRequestData {
	return loggedRequestData{
		TraceID: e.TraceID, At: models.MillisOf(e.At), Method: e.Method, Path: e.Target, Route: e.Route,
		Status: e.Status, DurationMs: e.Took.Milliseconds(), ErrorCode: e.ErrorCode, ClientID: e.Client,
		Console: e.Console,
	}
}

// loggedRequestList lists the organisation's latest requests, newest first.
type loggedRequestList struct {
	Items    []loggedRequestData `json:"items"`
	Position string              `json:"position"` // from which a stream continues after the list
}

// list answers with the organisation's latest requests. If the client prefers server-sent events,
// it streams later requests instead (see tail).
func (l *loggedRequests) list(ctx context.Context, r *Request) error {
	in := queryReader{r: r}
	limit := int(in.integer("limit", 1, requestlog.MaxRequests, defaultLoggedRequests))
	filter := readLoggedRequestFilter(&in)
	if err := in.err(); err != nil {
		return err
	}
	if r.wantsEvents() {
		return l.tail(ctx, r, filter)
	}
	found, end := l.log.Newest(r.Principal.OrganisationID, l.now(), limit, filter.matches)
	list := loggedRequestList{Items: make([]loggedRequestData, len(found)), Position: end.String()}
	for i := range found {
		list.Items[i] = describeLoggedRequest(&found[i])
	}
	return r.JSON(http.StatusOK, list)
}

// tail streams the organisation's requests as they are answered. It begins after Last-Event-ID, or
// now without that header.
func (l *loggedRequests) tail(ctx context.Context, r *Request, filter loggedRequestFilter) error {
	after, err := lastEventID(r, requestlog.ParsePosition)
	if err != nil {
		return err
	}
	return l.streams.serve(ctx, r, func() (eventSource, error) {
		organisation := r.Principal.OrganisationID
		source := &loggedRequestTail{
			log: l.log, watch: l.log.Watch(organisation), organisation: organisation, filter: filter,
			at: l.log.End(organisation, l.now()),
		}
		if after != nil {
			source.at = *after
		}
		return source, nil
	})
}

// loggedRequestFilter selects requests. Its zero value selects all.
type loggedRequestFilter struct {
	method string
	path   string // a prefix
	status int    // such as 404, or 4 for all from 400 to 499
}

// loggedMethods are the methods by which the filter can select: those of the routes.
var loggedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// readLoggedRequestFilter decodes the filter in the query.
func readLoggedRequestFilter(in *queryReader) loggedRequestFilter {
	f := loggedRequestFilter{method: oneOf(in, "method", loggedMethods), status: readStatus(in)}
	text, ok := in.r.Query("path")
	if ok && !strings.HasPrefix(text, "/") {
		in.fault(in.r.RefuseQuery("path", "must begin with a slash"))
	}
	f.path = text
	return f
}

// readStatus decodes a status, or a class of statuses: it returns 4 for 4xx. It returns 0 if the
// parameter is absent.
func readStatus(in *queryReader) int {
	text, ok := in.r.Query("status")
	if !ok {
		return 0
	}
	class, isClass := strings.CutSuffix(text, "xx")
	first, last := 100, 599
	if isClass {
		first, last = 1, 5
	}
	n, err := strconv.Atoi(class)
	if err != nil || n < first || n > last || strconv.Itoa(n) != class {
		in.fault(in.r.RefuseQuery("status", "must be a status such as 404, or a class of them such as 4xx"))
	}
	return n
}

// matches reports whether the filter selects a request.
func (f *loggedRequestFilter) matches(e *requestlog.LoggedRequest) bool {
	return (f.method == "" || e.Method == f.method) && strings.HasPrefix(e.Target, f.path) &&
		(f.status == 0 || f.status == e.Status || f.status == e.Status/100)
}

// loggedRequestEvent is a logged request on a stream. It leaves out the bodies, so that a waiting
// page stays small.
type loggedRequestEvent struct {
	id   string
	data loggedRequestData
}

// loggedRequestTail is the eventSource of one stream.
type loggedRequestTail struct {
	log          *requestlog.Log
	watch        *requestlog.Watch
	organisation models.OrganisationID
	filter       loggedRequestFilter
	at           requestlog.Position
	page         []loggedRequestEvent
}

// The methods of eventSource.

func (t *loggedRequestTail) position() string { return t.at.String() }

func (t *loggedRequestTail) version() (number uint64, changed <-chan struct{}) {
	return t.watch.Version()
}

func (t *loggedRequestTail) close() { t.watch.Close() }

func (t *loggedRequestTail) read(context.Context) (count int, more bool, err error) {
	var entries []requestlog.Entry
	entries, t.at, more = t.log.After(t.organisation, t.at, loggedRequestPage, t.filter.matches)
	t.page = make([]loggedRequestEvent, len(entries))
	for i := range entries {
		t.page[i] = loggedRequestEvent{entries[i].Position.String(), describeLoggedRequest(&entries[i].LoggedRequest)}
	}
	return len(t.page), more, nil
}

func (t *loggedRequestTail) write(out *bufio.Writer) error {
	for i := range t.page {
		data, err := EncodeData(t.page[i].data)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "id: %s\nevent: request\ndata: %s\n\n", t.page[i].id, data)
	}
	t.page = nil
	return nil
}
