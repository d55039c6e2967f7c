package api

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// retryHeld is the Retry-After of a refused stream.
const retryHeld = time.Second

// heldLimit bounds the requests of one kind that are held open at once: for an organisation, and
// for the process. It is safe for concurrent use.
type heldLimit struct {
	perOrganisation int
	total           int

	mu   sync.Mutex
	held map[models.OrganisationID]int
	all  int // of all organisations
}

// newHeldLimit returns a limit for an organisation and one for the process. kind is its label in
// the metrics.
func newHeldLimit(registry *prometheus.Registry, kind string, perOrganisation, total int) *heldLimit {
	l := &heldLimit{
		perOrganisation: perOrganisation, total: total, held: map[models.OrganisationID]int{},
	}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "svc_http_held",
		Help:        "HTTP requests that are held open, by kind: requests with Prefer: wait, and streams.",
		ConstLabels: prometheus.Labels{"kind": kind},
	}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(l.all)
	}))
	return l
}

// heldDivisor bounds the requests with Prefer: wait that are held. An organisation may use
// 1/heldDivisor of the process's connections for them, all organisations together 4/heldDivisor. A
// request above a limit is answered without a wait.
const heldDivisor = 8

// newHeldRequests returns the limit of the requests with Prefer: wait.
func newHeldRequests(cfg Config) *heldLimit {
	connections := connectionCapacity(cfg.MemoryLimit)
	return newHeldLimit(cfg.Metrics, "requests", connections/heldDivisor, 4*connections/heldDivisor)
}

// The errors of heldLimit.add.
var (
	errOrganisationHolds = errors.New("api: the organisation holds as many requests as it may")
	errProcessHolds      = errors.New("api: the process holds as many requests as it may")
)

// acquireStream counts one more stream. The error is the refusal: 429 at the organisation's limit,
// 503 at the limit of the process. Without an error, release must be called once.
func (l *heldLimit) acquireStream(organisation models.OrganisationID) (release func(), err error) {
	err = l.add(organisation)
	if err == nil {
		return func() { l.release(organisation) }, nil
	}
	e := Refuse(Unavailable, "")
	if errors.Is(err, errOrganisationHolds) {
		e = Refuse(RateLimited, "")
		e.Faults[0].Message = "Your organisation has as many open streams as it may have at once. " +
			"Try again after the time that Retry-After gives, in seconds."
	}
	e.RetryAfter = retryHeld
	return nil, e
}

// preferredWait returns the time for which a request with Prefer: wait is held. It is 0 if the
// request does not ask for a wait or if too many are held: the preference is advisory (RFC 7240).
// release must be called once.
func (l *heldLimit) preferredWait(r *Request) (wait time.Duration, release func()) {
	wait = r.PreferWait()
	if wait == 0 || l.add(r.Site.OrganisationID) != nil {
		return 0, func() {}
	}
	return wait, func() { l.release(r.Site.OrganisationID) }
}

// add counts one more request or stream. At a limit it returns errOrganisationHolds or
// errProcessHolds.
func (l *heldLimit) add(organisation models.OrganisationID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.held[organisation] >= l.perOrganisation:
		return errOrganisationHolds
	case l.all >= l.total:
		return errProcessHolds
	}
	l.held[organisation]++
	l.all++
	return nil
}

// release counts one request less.
func (l *heldLimit) release(organisation models.OrganisationID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	decrement(l.held, organisation)
}

// decrement subtracts 1 from a count, and deletes a count of 0.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}
