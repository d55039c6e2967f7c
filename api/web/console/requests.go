package console

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"partnerbilling/api/requestlog"
	"partnerbilling/models"
)

// maxShownRequests is the maximum number of requests that a page lists.
const maxShownRequests = 100

// requestsPage is the page with the organisation's latest API requests and its filters.
type requestsPage struct {
	Requests []requestlog.LoggedRequest
	Kept     int // requests in the log
	Matching int // requests in the log that match the filters
	Method   string
	Status   string // first digit; "" for all
	Search   string // part of the target or the trace id
}

func (c *Console) listRequests(v *visit) error {
	p := requestsPage{Method: v.query("method"), Status: v.query("status"), Search: v.query("q")}
	all := c.Requests.Latest(v.principal.OrganisationID)
	p.Kept = len(all)
	for _, e := range all {
		if !p.matches(e) {
			continue
		}
		p.Matching++
		if len(p.Requests) < maxShownRequests {
			p.Requests = append(p.Requests, e)
		}
	}
	return v.render(http.StatusOK, "requests", &base{Title: "API requests", Tab: "requests", Poll: true}, p)
}

// matches reports whether a request matches the filters.
func (p *requestsPage) matches(e requestlog.LoggedRequest) bool {
	return (p.Method == "" || e.Method == p.Method) &&
		(p.Status == "" || strings.HasPrefix(strconv.Itoa(e.Status), p.Status)) &&
		(p.Search == "" || strings.Contains(e.Target, p.Search) || strings.Contains(string(e.TraceID), p.Search))
}

// requestPage is the page of one request: its entry in the request log, and its trace.
type requestPage struct {
	TraceID  string
	Logged   *requestlog.LoggedRequest // nil: it is not in the log of this process
	Trace    *trace                    // nil: it stored nothing
	SitePath string                    // of the Site in Logged.Target; "" for none
}

// trace is the data of GET /traces/{traceId}.
type trace struct {
	At       models.Millis        `json:"at"`
	Kind     string               `json:"kind"`
	Batch    *models.BatchSummary `json:"batch"`
	Payment  *payment             `json:"paymentIntent"`
	Customer *traceCustomer       `json:"customer"`
	Rows     map[string]int       `json:"rows"`     // settled rows by outcome
	Attempts *int                 `json:"attempts"` // debit calls
	Events   []traceEvent         `json:"events"`
}

// traceCustomer is the customer link of a traced invitation.
type traceCustomer struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`
}

// traceEvent is a webhook event that a traced request has caused.
type traceEvent struct {
	IdempotencyKey string `json:"idempotencyKey"`
	Type           string `json:"type"`
	Status         string `json:"status"`
	Attempts       int    `json:"attempts"`
}

// showRequest shows what the log and the trace say about the request of a trace id.
func (c *Console) showRequest(v *visit) error {
	p := requestPage{TraceID: v.query("trace")}
	if e, ok := c.Requests.Find(v.principal.OrganisationID, p.TraceID); ok {
		p.Logged = &e
		if site := siteInPath.FindString(e.Target); site != "" {
			p.SitePath = Path + "/sites/" + site
		}
	}
	if isTraceID(p.TraceID) {
		r, err := v.call(http.MethodGet, pathOf("traces", p.TraceID), nil)
		if err != nil {
			return err
		}
		switch {
		case r.ok():
			p.Trace = &trace{}
			if err := r.into(p.Trace); err != nil {
				return err
			}
		case r.Status != http.StatusNotFound:
			return r.err()
		}
	}
	status := http.StatusOK
	if p.Logged == nil && p.Trace == nil {
		status = http.StatusNotFound
	}
	return v.render(status, "request", &base{Title: "Request " + p.TraceID, Tab: "requests"}, p)
}

// siteInPath finds the siteId in an API path.
var siteInPath = regexp.MustCompile(`site_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func isTraceID(text string) bool {
	_, err := models.ParseTraceID(text)
	return err == nil
}

// pretty indents a JSON body. It returns any other text unchanged.
func pretty(text string) string {
	var v json.RawMessage
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	indented, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return text
	}
	return string(indented)
}
