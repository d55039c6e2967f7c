package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"partnerbilling/api/strictjson"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// Sandbox is what only the sandbox environment has.
type Sandbox struct {
	// Clock offers /sandbox/clock, which is for a service that one person owns.
	Clock bool
	// Loopback lets webhooks go to the loopback addresses of this machine.
	Loopback bool
	// Faults lets the console break the sandbox rail. Only the sandbox rail takes notice.
	Faults bool
	// Links sign in to the console once each; nil: there are none.
	Links *console.SignInLinks
}

// maxClockStep is how far one request moves the clock.
const maxClockStep = 400 * 24 * time.Hour

// sandboxRoutes play the parts that real customers, banks and time have elsewhere. In production they are not there.
func sandboxRoutes(cfg Config) []Route {
	if cfg.Sandbox == nil {
		return nil
	}
	s := &sandbox{store: cfg.Store}
	table := []Route{{
		Method: http.MethodPost, Path: "/sandbox/sites/{siteId}/customers/{customerReference}/signup", Area: "signups",
		Audience: Partner, Scope: models.ScopeCustomersWrite, Param: customerParam(CustomerNotFound),
		Body: OptionalJSON, Handler: s.signup,
	}}
	if cfg.Sandbox.Clock {
		table = append(table,
			Route{Method: http.MethodGet, Path: "/sandbox/clock", Audience: Partner, Handler: s.readClock},
			Route{Method: http.MethodPost, Path: "/sandbox/clock", Audience: Partner, Body: JSONBody, Handler: s.moveClock},
		)
	}
	return table
}

// sandbox plays customers and time.
type sandbox struct{ store *models.Store }

// signup lets a customer accept the newest invitation of the reference.
func (s *sandbox) signup(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "behaviour")
	behaviour := models.BehaviourPays
	if text, ok := body.OptionalString("behaviour", checkBehaviour); ok {
		behaviour = models.Behaviour(text)
	}
	if err := r.BodyError(body); err != nil {
		return err
	}
	link, err := s.store.Customer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	party, err := newSandboxParty(ctx, s.store, behaviour)
	if err != nil {
		return err
	}
	signup, err := s.store.CompleteLink(ctx, link.ID, party)
	if errors.Is(err, models.ErrLinkTaken) { // the party is a new one each time
		e := Refuse(SignupTaken, "")
		e.Faults[0].Message = "The customer is linked already."
		return e
	}
	if err != nil {
		return signupError(err)
	}
	link.State, link.LinkedAt = signup.State, signup.LinkedAt
	return r.JSON(http.StatusOK, link.Summary())
}

func checkBehaviour(text string) error {
	if _, err := models.ParseBehaviour(text); err != nil {
		names := make([]string, len(models.Behaviours))
		for i, b := range models.Behaviours {
			names[i] = string(b)
		}
		return errors.New("must be one of " + strings.Join(names, ", "))
	}
	return nil
}

// newSandboxParty makes up a customer with an account. The account comes first: one that no link ever names is nobody's
// loss, a link without its account would be.
func newSandboxParty(ctx context.Context, store *models.Store, behaviour models.Behaviour) (models.Party, error) {
	id := uuid.NewString()
	party := models.Party{CustomerID: "sandbox-customer-" + id, AgreementID: "sandbox-agreement-" + id}
	return party, store.OpenSandboxAccount(ctx, party.AgreementID, behaviour)
}

// openPayingAccount gives an agreement that a customer app has brought along an account on the sandbox rail, one that
// pays, unless it has one. It comes before what uses the agreement: an account that nobody uses is nobody's loss.
func openPayingAccount(ctx context.Context, store *models.Store, agreementID string) error {
	return store.OpenSandboxAccount(ctx, agreementID, models.BehaviourPays)
}

type clockData struct {
	Now        models.Millis `json:"now"`
	AdvancedMs *int64        `json:"advancedMs,omitempty"` // of a reading; may be 0
}

// readClock answers with the service's time, and how far it is ahead of the database's.
func (s *sandbox) readClock(ctx context.Context, r *Request) error {
	now, advanced, err := s.store.Clock(ctx)
	if err != nil {
		return err
	}
	ms := advanced.Milliseconds()
	return r.JSON(http.StatusOK, clockData{now, &ms})
}

func (s *sandbox) moveClock(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "advanceMs")
	advance := body.RequiredInt("advanceMs", strictjson.Between(0, maxClockStep.Milliseconds()))
	if err := r.BodyError(body); err != nil {
		return err
	}
	now, err := s.store.AdvanceClock(ctx, time.Duration(advance)*time.Millisecond)
	if errors.Is(err, models.ErrClockRange) {
		return RefuseField(InvalidField, "advanceMs", "must not move the clock more than 100 years ahead in all")
	}
	if err != nil {
		return err
	}
	s.settleOverdue(ctx)
	return r.JSON(http.StatusOK, clockData{Now: now})
}

// settleOverdue settles the batches whose deadline the clock has jumped over, so that nobody reads one in progress after
// the answer. What it leaves, for whatever reason, the workers' sweep settles a moment later.
func (s *sandbox) settleOverdue(ctx context.Context) {
	for {
		if _, err := s.store.CloseOverdueBatch(ctx); err != nil {
			return
		}
	}
}
