package api_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// revocable authenticates the token "owner" until the test replaces the outcome. It wraps the Sites
// as well.
type revocable struct {
	callers
	api.Sites

	mu       sync.Mutex
	replaced func(api.Principal) (api.Principal, error) // nil until the test replaces the outcome
	noSite   bool
	rechecks chan struct{} // receives a value when a replaced outcome was returned

	arrived *arrivals
}

func (a *revocable) Authenticate(
	ctx context.Context, authorization string, from netip.Addr,
) (api.Principal, error) {
	p, err := a.callers.Authenticate(ctx, authorization, from)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.replaced == nil || authorization != "Bearer owner" || err != nil {
		return p, err
	}
	select {
	case a.rechecks <- struct{}{}:
	default:
	}
	return a.replaced(p)
}

func (a *revocable) Site(ctx context.Context, owner models.OrganisationID, id models.SiteID) (models.Site, error) {
	a.mu.Lock()
	gone := a.noSite
	a.mu.Unlock()
	if gone {
		return models.Site{}, models.ErrNotFound
	}
	return a.Sites.Site(ctx, owner, id)
}

func (a *revocable) replace(noSite bool, outcome func(api.Principal) (api.Principal, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replaced, a.noSite = outcome, noSite
}

// newRevocable returns hooks that repeat the caller check every millisecond. The token "second"
// stays valid.
func newRevocable(t *testing.T) (*hooks, *revocable) {
	t.Helper()
	a := &revocable{rechecks: make(chan struct{}, 1), arrived: newArrivals()}
	h := newHooks(t, func(cfg *api.Config) {
		a.callers, _ = cfg.Authenticator.(callers)
		a.Sites = cfg.Sites
		a.callers["second"] = a.callers["owner"]
		cfg.Authenticator, cfg.Sites, cfg.RecheckInterval = a, a, time.Millisecond
		cfg.Limiter = a.arrived
	})
	return h, a
}

// revocations are the ways in which a caller loses access during a request.
var revocations = map[string]struct {
	noSite  bool
	outcome func(api.Principal) (api.Principal, error)
	status  int
	fault   string
}{
	"the token has expired": {false, func(api.Principal) (api.Principal, error) {
		return api.Principal{}, auth.ErrInvalidToken
	}, 401, "auth:invalid-token"},
	"the scope is gone": {false, func(p api.Principal) (api.Principal, error) {
		p.Scopes = []models.Scope{models.ScopeCustomersRead}
		return p, nil
	}, 403, "auth:insufficient-scope"},
	"the Site is gone": {true, func(p api.Principal) (api.Principal, error) {
		return p, nil
	}, 403, "sites:site-not-accessible siteId"},
}

// A held request is refused like a new one once its caller has lost access.
func TestHeldRequestsAreRechecked(t *testing.T) {
	h, a := newRevocable(t)
	h.Post("/billing/sites/"+h.site.String()+"/batches", bodyOf("b", "ada")).Expect(202)
	id := dataOf[createdIntent](h.Post(h.intents(""), `{"amount":1}`).Expect(201)).PaymentIntentID
	waiting := h.With("Prefer", "wait=30")
	for name, c := range revocations {
		for _, path := range []string{"/billing/sites/" + h.site.String() + "/batches/b", h.intents("/" + id)} {
			t.Run(name+", "+path[:9], func(t *testing.T) {
				a.replace(false, nil)
				held := a.arrived.hold(t, waiting.For(t), path) // after its first check
				a.replace(c.noSite, c.outcome)
				answer := (<-held).Expect(c.status)
				if path[:9] == "/billing/" {
					answer.Refused(c.status, c.fault)
				}
			})
		}
	}
}

// A stream ends once its caller has lost access.
func TestStreamsAreRechecked(t *testing.T) {
	h, a := newRevocable(t)
	for name, c := range revocations {
		if c.noSite {
			continue // the stream has no Site
		}
		t.Run(name, func(t *testing.T) {
			a.replace(false, nil)
			s := h.listen()
			a.replace(c.noSite, c.outcome)
			for s.lines.Scan() {
				if line := s.lines.Text(); line != ": heartbeat" && line != "" {
					t.Errorf("got %q", line)
				}
			}
			if err := s.lines.Err(); err != nil {
				t.Errorf("the stream did not end well: %v", err)
			}
		})
	}
}

// While the check is inconclusive, a held request goes on.
func TestHeldRequestsOutliveAnOutage(t *testing.T) {
	h, a := newRevocable(t)
	h.Post("/billing/sites/"+h.site.String()+"/batches", bodyOf("b", "ada")).Expect(202)
	held := a.arrived.hold(t, h.With("Prefer", "wait=30"), "/billing/sites/"+h.site.String()+"/batches/b")
	a.replace(false, func(api.Principal) (api.Principal, error) { return api.Principal{}, models.ErrUnavailable })
	for range 3 {
		<-a.rechecks
	}
	a.replace(false, nil)
	h.WithToken("second").Post("/billing/sites/"+h.site.String()+"/batches/b/cancellation", nil).Expect(200)
	(<-held).Expect(200)
}
