package client

import (
	"context"
	"iter"
	"net/http"
)

// LoggedRequest is a request of the organisation to a sandbox, as the sandbox's request log keeps
// it.
type LoggedRequest struct {
	ID         string `json:"-"` // on a stream: for the LastID of a later TailRequests
	TraceID    string `json:"traceId"`
	At         int64  `json:"at"` // Unix ms; when it was answered, by the server's clock
	Method     string `json:"method"`
	Path       string `json:"path"`  // with the query, without secrets and tokens
	Route      string `json:"route"` // the path template of the OpenAPI document
	Status     int    `json:"status"`
	DurationMs int64  `json:"durationMs"`          // until the answer
	ErrorCode  string `json:"errorCode,omitempty"` // of the first fault; "" for a success
	ClientID   string `json:"clientId"`            // the API client that made it
	Console    bool   `json:"console,omitempty"`   // the console made it
}

// RequestFilter selects requests of the request log. Its zero value selects all.
type RequestFilter struct {
	Limit  int    // maximum length of a list, at most 1,000; 0: 100. A stream ignores it
	Status string // a status such as 404, or a class such as 4xx
	Method string // such as POST
	Path   string // the beginning of the path
}

// query encodes the filter.
func (f RequestFilter) query() string {
	return query(map[string]string{"status": f.Status, "method": f.Method, "path": f.Path},
		map[string]int64{"limit": int64(f.Limit)})
}

// RequestList is a list of requests in the log.
type RequestList struct {
	Items    []LoggedRequest `json:"items"`    // newest first
	Position string          `json:"position"` // the LastID with which TailRequests continues after the list
}

const requestLogPath = "/sandbox/requests"

// Requests returns the organisation's latest requests to a sandbox. Each server process has a log
// of its own, and the process that answers lists only its own.
func (c *Client) Requests(ctx context.Context, filter RequestFilter) (RequestList, error) {
	var out RequestList
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: requestLogPath + filter.query(), repeatable: true,
	}, &out)
	return out, err
}

// TailOptions configures TailRequests.
type TailOptions struct {
	Filter RequestFilter
	// LastID is the ID of a request or the Position of a list, after which the stream begins. ""
	// begins now.
	LastID string
	// Connected and Broken are as in ListenOptions.
	Connected func(position string)
	Broken    func(err error)
}

// TailRequests streams the organisation's requests to a sandbox as they are answered. It reconnects
// when the stream breaks, and continues after the last request. It ends with an error when ctx
// ends, when the service refuses the stream, or when a request cannot be decoded.
func (c *Client) TailRequests(ctx context.Context, options TailOptions) iter.Seq2[LoggedRequest, error] {
	return follow(ctx, c, requestLogPath+options.Filter.query(), ListenOptions{
		LastID: options.LastID, Connected: options.Connected, Broken: options.Broken,
	}, func(r *LoggedRequest, id string) { r.ID = id })
}
