package models_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// linkLife is the expected state of one link.
type linkLife struct {
	models.CustomerLink                  // State is effective
	reference           string           // the one it was made for
	stored              models.LinkState // as last seen in Postgres
	party               models.Party
}

// linkWorld runs random operations on two references and predicts every answer with simple code.
type linkWorld struct {
	*customers
	t     testing.TB
	now   models.Millis
	links []*linkLife // oldest first
}

// Random operations of partners, customers, the clock and the sweep give the predicted answers.
// States follow the transition table, and no reference has two active links.
func TestLinksUnderRandomOperations(t *testing.T) {
	c := newCustomers(t)
	rapid.Check(t, func(r *rapid.T) {
		world := &linkWorld{customers: c, t: t, now: noon}
		modelstest.SetClock(t, c.store, noon)
		c.site = c.newSite(t)
		r.Repeat(map[string]func(*rapid.T){
			"create":       world.createAny,
			"resend":       world.resendAny,
			"complete":     world.completeAny,
			"revoke":       world.revokeAny,
			"revoke by id": world.revokeLinkAny,
			"advance":      world.advanceAny,
			"sweep":        world.sweep,
			"":             world.check,
		})
	})
}

func anyReference(r *rapid.T) string {
	return rapid.SampledFrom([]string{"r/1", "r%2F1"}).Draw(r, "reference")
}

func (w *linkWorld) newest(reference string) *linkLife {
	for _, l := range slices.Backward(w.links) {
		if l.reference == reference {
			return l
		}
	}
	return nil
}

func (w *linkWorld) createAny(r *rapid.T) {
	reference := anyReference(r)
	life := time.Duration(rapid.Int64Range(0, (31*24*time.Hour).Milliseconds()).Draw(r, "life")) * time.Millisecond
	link, _, err := w.store.CreateInvitation(w.t.Context(), models.NewInvitation{SiteID: w.site,
		CustomerReference: reference, ExpiresAt: w.now.Add(life), KeyID: w.key}, nil)
	old := w.newest(reference)
	switch {
	case life < 5*time.Minute || life > 30*24*time.Hour:
		if err == nil {
			r.Fatalf("a life of %v was taken", life)
		}
	case old != nil && old.State.Active():
		wantError(r, err, models.ErrCustomerReferenceActive)
	default:
		must(r, err)
		w.links = append(w.links, &linkLife{CustomerLink: link, reference: reference, stored: models.LinkInvited})
	}
}

func (w *linkWorld) resendAny(r *rapid.T) {
	l := w.newest(anyReference(r))
	if l == nil {
		r.Skip()
	}
	got, err := w.store.LiveInvitation(w.t.Context(), w.site, l.reference)
	if l.State != models.LinkInvited {
		wantError(r, err, models.ErrNoLiveInvitation)
	} else if must(r, err); got.ID != l.ID {
		r.Fatalf("resent %v, want %v", got.ID, l.ID)
	}
}

func (w *linkWorld) anyLink(r *rapid.T) *linkLife {
	if len(w.links) == 0 {
		r.Skip()
	}
	return rapid.SampledFrom(w.links).Draw(r, "link")
}

func (w *linkWorld) completeAny(r *rapid.T) {
	l := w.anyLink(r)
	party := rapid.SampledFrom([]models.Party{alice, bob}).Draw(r, "party")
	_, err := w.complete(w.t, l.CustomerLink, party)
	switch {
	case l.State == models.LinkInvited:
		must(r, err)
		l.State, l.party = models.LinkLinked, party
	case l.State == models.LinkExpired:
		wantError(r, err, models.ErrLinkExpired)
	case l.State == models.LinkRevoked:
		wantError(r, err, models.ErrLinkRevoked)
	case l.party != party:
		wantError(r, err, models.ErrLinkTaken)
	default:
		must(r, err)
	}
}

func (w *linkWorld) revokeAny(r *rapid.T) {
	reference := anyReference(r)
	_, err := w.store.RevokeCustomer(w.t.Context(), w.site, reference)
	w.revoked(r, w.newest(reference), err)
}

func (w *linkWorld) revokeLinkAny(r *rapid.T) {
	l := w.anyLink(r)
	_, err := w.store.RevokeLink(w.t.Context(), l.ID)
	w.revoked(r, l, err)
}

func (w *linkWorld) revoked(r *rapid.T, l *linkLife, err error) {
	switch {
	case l == nil:
		wantError(r, err, models.ErrNotFound)
	case l.State == models.LinkExpired:
		wantError(r, err, models.ErrLinkExpired)
	default:
		must(r, err)
		l.State = models.LinkRevoked
	}
}

func (w *linkWorld) advanceAny(r *rapid.T) {
	by := time.Duration(rapid.Int64Range(1, (40*time.Hour).Milliseconds()).Draw(r, "by")) * time.Millisecond
	if len(w.links) > 0 && rapid.Bool().Draw(r, "to the edge of a life") {
		by = w.anyLink(r).ExpiresAt.Sub(w.now) - rapid.SampledFrom([]time.Duration{0, time.Millisecond}).
			Draw(r, "early")
	}
	if by <= 0 {
		r.Skip()
	}
	w.advanceBy(by)
}

func (w *linkWorld) advanceBy(by time.Duration) {
	modelstest.AdvanceClock(w.t, w.store, by)
	w.now = w.now.Add(by)
	for _, l := range w.links {
		if l.State == models.LinkInvited && w.now >= l.ExpiresAt {
			l.State = models.LinkExpired
		}
	}
}

func (w *linkWorld) sweep(r *rapid.T) {
	_, err := w.store.ExpireInvitations(w.t.Context(), rapid.IntRange(1, 3).Draw(r, "limit"))
	must(r, err)
}

func (w *linkWorld) check(r *rapid.T) {
	active := map[string]int{}
	for _, l := range w.links {
		if l.State.Active() {
			active[l.reference]++
		}
		var stored models.LinkState
		must(r, w.store.DB().QueryRowContext(w.t.Context(), "SELECT state FROM customer_links WHERE id = ?",
			l.ID).Scan(&stored))
		if stored != l.stored && !l.stored.CanBecome(stored) {
			r.Fatalf("a link moved from %s to %s", l.stored, stored)
		}
		if l.stored = stored; stored.At(l.ExpiresAt, w.now) != l.State {
			r.Fatalf("stored as %s, want %s", stored, l.State)
		}
	}
	for reference, n := range active {
		if n > 1 {
			r.Fatalf("%q has %d active links", reference, n)
		}
	}
	for _, reference := range []string{"r/1", "r%2F1"} {
		l := w.newest(reference)
		got, err := w.store.Customer(w.t.Context(), w.site, reference)
		if l == nil {
			wantError(r, err, models.ErrNotFound)
		} else if must(r, err); got.ID != l.ID || got.State != l.State {
			r.Fatalf("%q reads %v %s, want %v %s", reference, got.ID, got.State, l.ID, l.State)
		}
	}
}
