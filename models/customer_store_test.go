package models_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/models"
)

const week = 7 * 24 * time.Hour

func TestCreateInvitation(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	ctx := models.WithTraceID(t.Context(), "0123456789abcdef0123456789abcdef")
	link, err := c.create(ctx, "acct 7/é")
	must(t, err)
	want := models.CustomerLink{SiteID: c.site, ID: link.ID, CustomerReference: "acct 7/é", State: models.LinkInvited,
		InvitedAt: noon, ExpiresAt: noon.Add(week), KeyID: c.key, TraceID: "0123456789abcdef0123456789abcdef"}
	if diff := cmp.Diff(want, link); diff != "" {
		t.Error(diff)
	}
	stored, err := c.store.Customer(ctx, c.site, "acct 7/é")
	must(t, err)
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error(diff)
	}
}

func TestCreateInvitationExpiry(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	const least, most = 5 * time.Minute, 30 * 24 * time.Hour
	for i, row := range []struct {
		ahead time.Duration
		ok    bool
	}{
		{least, true}, {least - time.Millisecond, false}, {most, true}, {most + time.Millisecond, false},
		{-time.Hour, false}, {time.Duration(-noon) * time.Millisecond, true}, // expiresAt 0: not given
	} {
		_, _, err := c.store.CreateInvitation(t.Context(), models.NewInvitation{SiteID: c.site,
			CustomerReference: fmt.Sprint(i), ExpiresAt: noon.Add(row.ahead), KeyID: c.key}, nil)
		var field *models.FieldError
		switch {
		case row.ok && err != nil:
			t.Errorf("%v ahead: %v", row.ahead, err)
		case !row.ok && (!errors.As(err, &field) || field.Field != "expiresAt"):
			t.Errorf("%v ahead: got %v, want a fault of expiresAt", row.ahead, err)
		}
	}
}

func TestCreateInvitationWhileActive(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	link := c.invite(t, "r")
	_, err := c.create(t.Context(), "r")
	wantError(t, err, models.ErrCustomerReferenceActive)
	c.advance(t, week-time.Millisecond)
	_, err = c.create(t.Context(), "r")
	wantError(t, err, models.ErrCustomerReferenceActive)
	_, err = c.complete(t, link, alice)
	must(t, err)
	c.advance(t, week)
	_, err = c.create(t.Context(), "r")
	wantError(t, err, models.ErrCustomerReferenceActive)

	elsewhere := *c
	elsewhere.site = c.newSite(t)
	elsewhere.invite(t, "r")
	c.invite(t, "R") // references are compared byte for byte
	c.invite(t, "r ")
	c.invite(t, "\u00e9")
	c.invite(t, "e\u0301")
}

func TestCreateInvitationOverExpired(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	old := c.invite(t, "r")
	c.advance(t, week)
	renewed := c.invite(t, "r")
	if renewed.ID == old.ID {
		t.Fatal("the same link")
	}
	var state models.LinkState
	must(t, c.store.DB().QueryRowContext(t.Context(), "SELECT state FROM customer_links WHERE id = ?",
		old.ID).Scan(&state))
	if state != models.LinkExpired {
		t.Errorf("the old link is stored as %s", state)
	}
}

func TestNewestLinkWhenTheClockStandsStill(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	for i := range 5 {
		link := c.invite(t, "r")
		if want := noon + models.Millis(i); link.InvitedAt != want {
			t.Errorf("link %d: invited at %d, want %d", i, link.InvitedAt, want)
		}
		got, err := c.store.RevokeCustomer(t.Context(), c.site, "r")
		must(t, err)
		if got.ID != link.ID || got.State != models.LinkRevoked || got.RevokedAt != noon {
			t.Errorf("revoked %+v, want %v", got, link.ID)
		}
	}
}

func TestLiveInvitation(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	ctx := t.Context()
	_, err := c.store.LiveInvitation(ctx, c.site, "r")
	wantError(t, err, models.ErrNotFound)
	link := c.invite(t, "r")
	got, err := c.store.LiveInvitation(ctx, c.site, "r")
	must(t, err)
	if diff := cmp.Diff(link, got); diff != "" {
		t.Error(diff)
	}
	c.advance(t, week)
	_, err = c.store.LiveInvitation(ctx, c.site, "r")
	wantError(t, err, models.ErrNoLiveInvitation)
	link = c.invite(t, "r")
	_, err = c.complete(t, link, alice)
	must(t, err)
	_, err = c.store.LiveInvitation(ctx, c.site, "r")
	wantError(t, err, models.ErrNoLiveInvitation)
}

func TestRevoke(t *testing.T) {
	type revoke func(*customers, models.CustomerLink) (models.CustomerLink, error)
	ways := map[string]revoke{
		"by reference": func(c *customers, l models.CustomerLink) (models.CustomerLink, error) {
			return c.store.RevokeCustomer(t.Context(), c.site, l.CustomerReference)
		},
		"by id": func(c *customers, l models.CustomerLink) (models.CustomerLink, error) {
			return c.store.RevokeLink(t.Context(), l.ID)
		},
	}
	for name, revoke := range ways {
		t.Run(name, func(t *testing.T) {
			c := newCustomers(t)
			c.freeze(t)
			_, err := revoke(c, models.CustomerLink{ID: models.LinkID(uuid.New()), CustomerReference: "nobody"})
			wantError(t, err, models.ErrNotFound)

			invited := c.invite(t, "invited")
			linked := c.invite(t, "linked")
			_, err = c.complete(t, linked, alice)
			must(t, err)
			for range 2 {
				for _, link := range []models.CustomerLink{invited, linked} {
					got, err := revoke(c, link)
					must(t, err)
					if got.State != models.LinkRevoked || got.RevokedAt != noon || got.ID != link.ID {
						t.Errorf("%s: got %+v", link.CustomerReference, got)
					}
				}
				c.advance(t, time.Second)
			}
			expired := c.invite(t, "expired")
			c.advance(t, week)
			_, err = revoke(c, expired)
			wantError(t, err, models.ErrLinkExpired)
			if got := c.state(t, "expired"); got != models.LinkExpired {
				t.Errorf("revoking moved an expired link to %s", got)
			}
		})
	}
}

func TestExpireInvitations(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	for i := range 5 {
		c.invite(t, fmt.Sprint("due ", i))
	}
	c.advance(t, time.Second)
	c.invite(t, "later")
	c.advance(t, week-time.Second)
	for _, want := range []int{3, 2, 0} {
		n, err := c.store.ExpireInvitations(t.Context(), 3)
		must(t, err)
		if n != want {
			t.Errorf("expired %d, want %d", n, want)
		}
	}
	if got := c.state(t, "later"); got != models.LinkInvited {
		t.Errorf("later is %s", got)
	}
}

func TestExpireInvitationsDoesNotWait(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	held := c.invite(t, "held")
	c.invite(t, "free")
	c.advance(t, week)
	tx, err := c.store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM customer_links WHERE id = ? FOR UPDATE", held.ID)
	must(t, err)
	n, err := c.store.ExpireInvitations(t.Context(), 10)
	must(t, err)
	if n != 1 {
		t.Errorf("expired %d, want 1", n)
	}
}

func TestConcurrentInvitationsOfOneReference(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	c.invite(t, "r")
	c.advance(t, week) // the first request also expires this link
	const n = 20
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = c.create(t.Context(), "r") })
	}
	all.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			wantError(t, err, models.ErrCustomerReferenceActive)
		}
	}
	if made != 1 {
		t.Errorf("%d invitations, want 1", made)
	}
}

func wantError(t failer, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got error %v, want %v", got, want)
	}
}
