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

// maxShownRequests is how many requests a page lists.
const maxShownRequests = 100

// requestsPage lists the latest API requests.
type requestsPage struct {
	Requests []requestlog.LoggedRequest
	Kept     int // requests in the log
	Matching int // those of them that match the filters
	Method   string
	Status   string // its first digit
	Search   string // in the target or the trace id
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

func (p *requestsPage) matches(e requestlog.LoggedRequest) bool {
	return (p.Method == "" || e.Method == p.Method) &&
		(p.Status == "" || strings.HasPrefix(strconv.Itoa(e.Status), p.Status)) &&
		(p.Search == "" || strings.Contains(e.Target, p.Search) || strings.Contains(string(e.TraceID), p.Search))
}

// requestPage is one request: its entry in the log, and its trace.
type requestPage struct {
	TraceID  string
	Logged   *requestlog.LoggedRequest // nil: it is not in the log of this process
	Trace    *trace                    // nil: it stored nothing
	SitePath string                    // of the pages about the subject's Site; "" if the Site is unknown
}

// trace is the data of GET /traces/{traceId}.
type trace struct {
	At       models.Millis        `json:"at"`
	Kind     string               `json:"kind"`
	Batch    *models.BatchSummary `json:"batch"`
	Payment  *payment             `json:"paymentIntent"`
	Customer *traceCustomer       `json:"customer"`
	Rows     map[string]int       `json:"rows"` // settled ones by outcome
	Attempts *int                 `json:"attempts"`
	Events   []traceEvent         `json:"events"`
}

type traceCustomer struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`
}

type traceEvent struct {
	IdempotencyKey string `json:"idempotencyKey"`
	Type           string `json:"type"`
	Status         string `json:"status"`
	Attempts       int    `json:"attempts"`
}

// showRequest shows the request of a trace id, as the log and the trace know it.
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

// siteInPath finds the Site of an API path.
var siteInPath = regexp.MustCompile(`site_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func isTraceID(text string) bool {
	_, err := models.ParseTraceID(text)
	return err == nil
}

// pretty indents a JSON body; another text stays as it is.
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
