package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// signups handles the routes of the customer app's backend about sign-ups and customer links.
type signups struct {
	store   *models.Store
	keys    *models.Keys
	sandbox bool // agreements are on the sandbox rail
}

func newSignups(cfg Config) *signups {
	return &signups{store: cfg.Store, keys: cfg.Keys, sandbox: cfg.Sandbox != nil}
}

// signupData is a sign-up as the customer app sees it. It repeats nothing that the app sent.
type signupData struct {
	LinkID           models.LinkID    `json:"linkId"`
	OrganisationName string           `json:"organisationName"`
	SiteName         string           `json:"siteName"`
	State            models.LinkState `json:"state"`
	InvitedAt        models.Millis    `json:"invitedAt"`
	ExpiresAt        models.Millis    `json:"expiresAt,omitempty"` // only while invited
	LinkedAt         models.Millis    `json:"linkedAt,omitempty"`  // only while linked
}

// signupOf returns a sign-up in the form of an answer.
func signupOf(s *models.Signup) signupData {
	d := signupData{LinkID: s.LinkID, OrganisationName: s.OrganisationName, SiteName: s.SiteName, State: s.State,
		InvitedAt: s.InvitedAt}
	switch s.State {
	case models.LinkInvited:
		d.ExpiresAt = s.ExpiresAt
	case models.LinkLinked:
		d.LinkedAt = s.LinkedAt
	case models.LinkExpired, models.LinkRevoked:
	}
	return d
}

// get answers with the sign-up whose token is in the path.
func (s *signups) get(ctx context.Context, r *Request) error {
	signup, err := s.store.Signup(ctx, s.keys, r.Param())
	if err != nil {
		return signupError(err)
	}
	return r.JSON(http.StatusOK, signupOf(&signup))
}

// complete completes the sign-up whose token is in the path: its Site and the customer in the body
// become linked. In a sandbox, complete first opens an account for the customer's agreement.
func (s *signups) complete(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "customerId", "agreementId")
	party := models.Party{
		CustomerID:  body.RequiredString("customerId", models.ValidateReference),
		AgreementID: body.RequiredString("agreementId", models.ValidateReference),
	}
	if err := r.BodyError(body); err != nil {
		return err
	}
	if s.sandbox {
		if err := openPayingAccount(ctx, s.store, party.AgreementID); err != nil {
			return err
		}
	}
	signup, err := s.store.CompleteSignup(ctx, s.keys, r.Param(), party)
	if err != nil {
		return signupError(err)
	}
	return r.JSON(http.StatusOK, signupOf(&signup))
}

// signupError maps errors about the sign-up in the path to their answers. It returns other errors
// unchanged.
func signupError(err error) error {
	for _, row := range []struct {
		err    error
		code   Code
		target string
	}{
		{models.ErrNotFound, SignupNotFound, "token"}, {models.ErrLinkTaken, SignupTaken, ""},
		{models.ErrLinkExpired, SignupExpired, ""}, {models.ErrLinkRevoked, SignupRevoked, ""},
	} {
		if errors.Is(err, row.err) {
			return Refuse(row.code, row.target)
		}
	}
	return err
}

// revocationData is a revoked link as the customer app sees it.
type revocationData struct {
	LinkID    models.LinkID    `json:"linkId"`
	State     models.LinkState `json:"state"`
	RevokedAt models.Millis    `json:"revokedAt"`
}

// revoke revokes the customer link in the path.
func (s *signups) revoke(ctx context.Context, r *Request) error {
	link, err := s.store.RevokeLink(ctx, paramID[models.LinkID](r))
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Refuse(CustomerLinkNotFound, "linkId")
	case errors.Is(err, models.ErrLinkExpired):
		return Refuse(CustomerLinkExpired, "linkId")
	case err != nil:
		return err
	}
	return r.JSON(http.StatusOK, revocationData{link.ID, link.State, link.RevokedAt})
}
