package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// turning lets the holder of the token "owner" in until the test turns it: then as turned says. It counts how often it was
// asked since.
type turning struct {
	callers
	api.Sites

	mu     sync.Mutex
	turned func(api.Principal) (api.Principal, error)
	noSite bool
	asked  chan struct{}

	arrived *arrivals
}

func (a *turning) Authenticate(ctx context.Context, authorization string) (api.Principal, error) {
	p, err := a.callers.Authenticate(ctx, authorization)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turned == nil || authorization != "Bearer owner" || err != nil {
		return p, err
	}
	select {
	case a.asked <- struct{}{}:
	default:
	}
	return a.turned(p)
}

func (a *turning) Site(ctx context.Context, owner models.OrganisationID, id models.SiteID) (models.Site, error) {
	a.mu.Lock()
	gone := a.noSite
	a.mu.Unlock()
	if gone {
		return models.Site{}, models.ErrNotFound
	}
	return a.Sites.Site(ctx, owner, id)
}

func (a *turning) turn(noSite bool, how func(api.Principal) (api.Principal, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned, a.noSite = how, noSite
}

// newTurning is hooks whose requests are checked again all the time. The token "second" is never turned.
func newTurning(t *testing.T) (*hooks, *turning) {
	t.Helper()
	a := &turning{asked: make(chan struct{}, 1), arrived: newArrivals()}
	h := newHooks(t, func(cfg *api.Config) {
		a.callers, _ = cfg.Authenticator.(callers)
		a.Sites = cfg.Sites
		a.callers["second"] = a.callers["owner"]
		cfg.Authenticator, cfg.Sites, cfg.RecheckEvery = a, a, time.Millisecond
		cfg.Limiter = a.arrived
	})
	return h, a
}

// turns are what may have become of a caller in the middle of a request.
var turns = map[string]struct {
	noSite bool
	how    func(api.Principal) (api.Principal, error)
	status int
	fault  string
}{
	"the token has expired": {false, func(api.Principal) (api.Principal, error) {
		return api.Principal{}, auth.ErrInvalidToken
	}, 401, "auth:invalid-token"},
	"the scope is gone": {false, func(p api.Principal) (api.Principal, error) {
		p.Scopes = []models.Scope{models.ScopeCustomersRead}
		return p, nil
	}, 403, "auth:insufficient-scope"},
	"the Site is gone": {true, func(p api.Principal) (api.Principal, error) { return p, nil }, 403, "sites:site-not-accessible siteId"},
}

// A held request is answered as a new one would be, once its caller would not be let in any more.
func TestHeldRequestsAreRechecked(t *testing.T) {
	h, a := newTurning(t)
	h.Post("/billing/sites/"+h.site.String()+"/batches", bodyOf("b", "ada")).Expect(202)
	id := dataOf[createdIntent](h.Post(h.intents(""), `{"amount":1}`).Expect(201)).PaymentIntentID
	waiting := h.With("Prefer", "wait=30")
	for name, c := range turns {
		for _, path := range []string{"/billing/sites/" + h.site.String() + "/batches/b", h.intents("/" + id)} {
			t.Run(name+", "+path[:9], func(t *testing.T) {
				a.turn(false, nil)
				held := a.arrived.hold(t, waiting.For(t), path) // whose token has been looked at
				a.turn(c.noSite, c.how)
				answer := (<-held).Expect(c.status)
				if path[:9] == "/billing/" {
					answer.Refused(c.status, c.fault)
				}
			})
		}
	}
}

// A stream ends when its caller would not be let in any more.
func TestStreamsAreRechecked(t *testing.T) {
	h, a := newTurning(t)
	for name, c := range turns {
		if c.noSite {
			continue // it has none
		}
		t.Run(name, func(t *testing.T) {
			a.turn(false, nil)
			s := h.listen()
			a.turn(c.noSite, c.how)
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

// While nobody can tell whether a caller is still welcome, a held request stays.
func TestHeldRequestsOutliveAnOutage(t *testing.T) {
	h, a := newTurning(t)
	h.Post("/billing/sites/"+h.site.String()+"/batches", bodyOf("b", "ada")).Expect(202)
	held := a.arrived.hold(t, h.With("Prefer", "wait=30"), "/billing/sites/"+h.site.String()+"/batches/b")
	a.turn(false, func(api.Principal) (api.Principal, error) { return api.Principal{}, models.ErrUnavailable })
	for range 3 {
		<-a.asked
	}
	a.turn(false, nil)
	h.WithToken("second").Post("/billing/sites/"+h.site.String()+"/batches/b/cancellation", nil).Expect(200)
	(<-held).Expect(200)
}
