package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// invitations handles the routes that invite customers, and that show the sign-up link of an
// invitation again.
type invitations struct {
	store   *models.Store
	keys    *models.Keys
	baseURL string
}

func newInvitations(cfg Config) *invitations {
	return &invitations{store: cfg.Store, keys: cfg.Keys, baseURL: cfg.PublicBaseURL}
}

// invitationData is an invitation as its partner sees it.
type invitationData struct {
	CustomerReference string           `json:"customerReference"`
	State             models.LinkState `json:"state"`
	SignupURL         string           `json:"signupUrl"`
	InvitedAt         models.Millis    `json:"invitedAt"`
	ExpiresAt         models.Millis    `json:"expiresAt"`
}

// create invites the customer whose customerReference is in the body, and answers with the sign-up
// link.
func (i *invitations) create(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "customerReference", "expiresAt")
	in := models.NewInvitation{SiteID: r.Site.ID, OrganisationID: r.Site.OrganisationID}
	in.CustomerReference = body.RequiredString("customerReference", models.ValidateReference)
	expiresAt, _ := body.OptionalInt("expiresAt", strictjson.AtLeast(1))
	in.ExpiresAt = models.Millis(expiresAt)
	if err := r.BodyError(body); err != nil {
		return r.joinExpiryFault(ctx, err, i.store, in.ExpiresAt, models.CheckInvitationExpiry)
	}
	key, err := i.keys.Current(ctx, models.KeySignupLink)
	if err != nil {
		return err
	}
	in.KeyID = key.ID
	link, replayed, err := i.store.CreateInvitation(ctx, in, idempotencyKey(r))
	if err != nil {
		return invitationError(err)
	}
	if replayed {
		r.Replayed()
	}
	r.Location("billing", "sites", r.Site.ID.String(), "customers", link.CustomerReference)
	return i.answer(ctx, r, http.StatusCreated, &link)
}

// resend answers with the sign-up link of the live invitation of the customerReference in the path.
// It sends nothing to the customer.
func (i *invitations) resend(ctx context.Context, r *Request) error {
	link, err := i.store.LiveInvitation(ctx, r.Site.ID, r.Param())
	if err != nil {
		return invitationError(err)
	}
	return i.answer(ctx, r, http.StatusOK, &link)
}

// answer answers with an invitation and its sign-up link, whose token it derives from the key of
// the link.
func (i *invitations) answer(ctx context.Context, r *Request, status int, link *models.CustomerLink) error {
	token, err := i.keys.SignupToken(ctx, link.ID, link.KeyID)
	if err != nil { // ErrNotFound: the key was retired after a leak, and its invitations with it
		return invitationError(err)
	}
	return r.JSON(status, invitationData{
		CustomerReference: link.CustomerReference, State: link.State, SignupURL: i.baseURL + PathOf("signup", token),
		InvitedAt: link.InvitedAt, ExpiresAt: link.ExpiresAt,
	})
}

// invitationError maps errors about an invitation to their answers. It returns other errors
// unchanged.
func invitationError(err error) error {
	switch {
	case errors.Is(err, models.ErrCustomerReferenceActive):
		return Refuse(CustomerReferenceActive, "customerReference")
	case errors.Is(err, models.ErrNoLiveInvitation), errors.Is(err, models.ErrNotFound):
		return Refuse(NoLiveInvitation, "customerReference")
	}
	return err
}
