package models_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// customerBody is the body of a customer's event, with its times given as JSON.
func (w *webhooks) customerBody(
	event models.WebhookEventType, link models.CustomerLink, state models.LinkState, more string,
) string {
	return fmt.Sprintf(
		`{"type":"%s","data":{"idempotencyKey":"KEY","siteId":{"id":"%s"},"customer":{"customerReference":"%s","state":"%s",`+
			`"invitedAt":%d%s}},"traceId":"%s"}`, event, w.site.ID, link.CustomerReference, state, link.InvitedAt, more,
		link.TraceID)
}

func (w *webhooks) inviteTraced(reference string) models.CustomerLink {
	w.t.Helper()
	ctx := models.WithTraceID(w.t.Context(), models.NewTraceID())
	link, _, err := w.CreateInvitation(ctx, models.NewInvitation{SiteID: w.site.ID, CustomerReference: reference}, nil)
	must(w.t, err)
	return link
}

// Every change of a customer's state is announced once, in the transaction of the change.
func TestCustomerEvents(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	ada, bob, eve := w.inviteTraced("ada"), w.inviteTraced("bob"), w.inviteTraced("eve")
	w.advance(time.Second)
	for range 2 { // the same customer again
		_, err := w.CompleteLink(t.Context(), ada.ID, models.Party{CustomerID: "c", AgreementID: "a"})
		must(t, err)
	}
	if _, err := w.CompleteLink(t.Context(), ada.ID, models.Party{CustomerID: "d", AgreementID: "a"}); !errors.Is(err,
		models.ErrLinkTaken) {
		t.Errorf("another customer: %v", err)
	}
	w.wantTold(models.EventCustomerLinked,
		w.customerBody(models.EventCustomerLinked, ada, models.LinkLinked,
			fmt.Sprintf(`,"linkedAt":%d`, webhookStart+1000)))

	for range 2 { // revoked stays as it is
		_, err := w.RevokeLink(t.Context(), ada.ID) // by the customer
		must(t, err)
	}
	w.advance(time.Millisecond)
	_, err := w.RevokeCustomer(t.Context(), w.site.ID, "bob") // by the partner
	must(t, err)
	w.wantTold(models.EventCustomerRevoked, w.customerBody(models.EventCustomerRevoked, ada, models.LinkRevoked, ""),
		w.customerBody(models.EventCustomerRevoked, bob, models.LinkRevoked, ""))

	w.advance(models.DefaultInvitationLife)
	if _, err := w.RevokeCustomer(t.Context(), w.site.ID, "eve"); !errors.Is(err, models.ErrLinkExpired) {
		t.Errorf("revoked an expired invitation: %v", err)
	}
	again := w.inviteTraced("eve") // turns the one before to expired
	w.wantTold(models.EventCustomerExpired, w.customerBody(models.EventCustomerExpired, eve, models.LinkExpired, ""))
	w.advance(models.DefaultInvitationLife)
	for range 2 {
		_, err := w.ExpireInvitations(t.Context(), 10)
		must(t, err)
	}
	w.wantTold(models.EventCustomerExpired, w.customerBody(models.EventCustomerExpired, eve, models.LinkExpired, ""),
		w.customerBody(models.EventCustomerExpired, again, models.LinkExpired, ""))
	if n := w.count("outbox WHERE kind = 'deliverWebhook'"); n != 5 {
		t.Errorf("%d tasks deliver 5 events", n)
	}
	modelstest.Audit(t, w.Store)
}

// A refused request rolls back the expiry that it recorded, and its event.
func TestCustomerExpiredIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	eve := w.inviteTraced("eve")
	w.advance(models.DefaultInvitationLife)
	_, _, err := w.CreateInvitation(t.Context(), models.NewInvitation{SiteID: w.site.ID, CustomerReference: "eve",
		ExpiresAt: 1}, nil)
	if fault := (*models.FieldError)(nil); !errors.As(err, &fault) {
		t.Fatalf("invited: %v", err)
	}
	w.wantTold(models.EventCustomerExpired)
	_, err = w.ExpireInvitations(t.Context(), 10)
	must(t, err)
	w.wantTold(models.EventCustomerExpired, w.customerBody(models.EventCustomerExpired, eve, models.LinkExpired, ""))
}

// Sweeps and new invitations that race to record an expiry announce it once.
func TestCustomerExpiredOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.ask(models.SiteID{}, models.WebhookEventTypes...)
	const references = 5
	for i := range references {
		w.inviteTraced(fmt.Sprint(i))
	}
	w.advance(models.DefaultInvitationLife)
	race(20, func(i int) string {
		if i%2 == 0 {
			_, err := w.ExpireInvitations(t.Context(), 2)
			return fmt.Sprint(err)
		}
		_, _, err := w.CreateInvitation(t.Context(), models.NewInvitation{SiteID: w.site.ID,
			CustomerReference: fmt.Sprint(i / 2 % references)}, nil)
		return fmt.Sprint(err)
	})
	_, err := w.ExpireInvitations(t.Context(), 100)
	must(t, err)
	told := w.told(models.EventCustomerExpired)
	slices.Sort(told)
	if n := len(slices.Compact(told)); len(told) != references || n != references {
		t.Errorf("told %d times, of %d links", len(told), n)
	}
}

// After a loss of an event and its state, the same state gets the same key, and another state
