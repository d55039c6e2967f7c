package models_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

func TestSignup(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	link := c.invite(t, "r")
	want := models.Signup{LinkID: link.ID, State: models.LinkInvited, InvitedAt: noon, ExpiresAt: noon.Add(week),
		Payee: models.Payee{OrganisationName: "Harbour Power", SiteName: "North Quay"}}
	check := func(got models.Signup, err error) {
		t.Helper()
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	for range 2 { // looking consumes nothing
		check(c.store.Signup(t.Context(), c.keys, c.token(t, link)))
	}
	c.advance(t, time.Minute)
	want.State, want.LinkedAt = models.LinkLinked, noon.Add(time.Minute)
	check(c.complete(t, link, alice))
	c.advance(t, week)
	check(c.complete(t, link, alice))
	check(c.store.Signup(t.Context(), c.keys, c.token(t, link)))

	_, err := c.complete(t, link, bob)
	wantError(t, err, models.ErrLinkTaken)
	// the first one stands
	check(c.complete(t, link, models.Party{CustomerID: alice.CustomerID, AgreementID: bob.AgreementID}))

	_, err = c.store.RevokeLink(t.Context(), link.ID)
	must(t, err)
	_, err = c.complete(t, link, alice)
	wantError(t, err, models.ErrLinkRevoked)
	want.State = models.LinkRevoked
	check(c.store.Signup(t.Context(), c.keys, c.token(t, link)))
}

func TestSignupAtTheMomentOfExpiry(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	early, late := c.invite(t, "early"), c.invite(t, "late")
	c.advance(t, week-time.Millisecond)
	if _, err := c.complete(t, early, alice); err != nil {
		t.Errorf("in the last millisecond: %v", err)
	}
	c.advance(t, time.Millisecond)
	_, err := c.complete(t, late, alice)
	wantError(t, err, models.ErrLinkExpired)
	signup, err := c.store.Signup(t.Context(), c.keys, c.token(t, late))
	must(t, err)
	if signup.State != models.LinkExpired {
		t.Errorf("it reads as %s", signup.State)
	}
}

func TestForeignSignupTokens(t *testing.T) {
	c, other := newCustomers(t), newCustomers(t)
	link := c.invite(t, "r")
	token := c.token(t, link)
	last := token[len(token)-1:]
	foreign := map[string]string{
		"empty": "", "blank": " ", "the id alone": link.ID.String(), "cut": token[:len(token)-1], "longer": token + "A",
		"padded": token + "=", "newline": token[:47] + "\n", "other case": strings.ToLower(token),
		"changed end":       token[:len(token)-1] + map[bool]string{true: "A", false: "B"}[last != "A"],
		"another's":         other.token(t, other.invite(t, "r")),
		"another's key":     mustToken(t, other, link.ID),
		"same key, no link": mustToken(t, c, other.invite(t, "s").ID),
	}
	for name, token := range foreign {
		_, err := c.store.Signup(t.Context(), c.keys, token)
		if !errors.Is(err, models.ErrNotFound) {
			t.Errorf("%s: look: %v", name, err)
		}
		_, err = c.store.CompleteSignup(t.Context(), c.keys, token, alice)
		if !errors.Is(err, models.ErrNotFound) {
			t.Errorf("%s: complete: %v", name, err)
		}
	}
	if got := c.state(t, "r"); got != models.LinkInvited {
		t.Errorf("the link is %s", got)
	}
}

func mustToken(t *testing.T, c *customers, link models.LinkID) string {
	t.Helper()
	token, err := c.keys.SignupToken(t.Context(), link, c.key)
	must(t, err)
	return token
}

func TestSignupTokenUnderAKeyOfAnotherPurpose(t *testing.T) {
	c := newCustomers(t)
	key, err := c.keys.Current(t.Context(), models.KeySealedText)
	must(t, err)
	link, _, err := c.store.CreateInvitation(t.Context(), models.NewInvitation{
		SiteID: c.site, CustomerReference: "r", KeyID: key.ID}, nil)
	must(t, err)
	_, err = c.complete(t, link, alice)
	wantError(t, err, models.ErrNotFound)
}

// Many customers race for one link, also at the moment of expiry. The link ends linked to the
// customer that was told so, or expired without one.
func TestSignupRaces(t *testing.T) {
	c := newCustomers(t)
	for round := range 10 {
		c.freeze(t)
		c.advance(t, time.Duration(round)*30*24*time.Hour)
		link := c.invite(t, "r")
		token := c.token(t, link)
		c.advance(t, week-time.Millisecond)
		var won atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			party := models.Party{CustomerID: string(rune('a' + i)), AgreementID: "x"}
			all.Go(func() {
				switch _, err := c.store.CompleteSignup(t.Context(), c.keys, token, party); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, models.ErrLinkTaken) && !errors.Is(err, models.ErrLinkExpired):
					t.Errorf("completion: %v", err)
				}
			})
		}
		all.Go(func() { c.advance(t, time.Millisecond) })
		all.Go(func() { _, _ = c.store.ExpireInvitations(t.Context(), 10) })
		all.Wait()
		want := map[int32]models.LinkState{0: models.LinkExpired, 1: models.LinkLinked}[won.Load()]
		if got := c.state(t, "r"); got != want {
			t.Errorf("round %d: %d won and the link is %s", round, won.Load(), got)
		}
		if want == models.LinkLinked {
			_, err := c.store.RevokeCustomer(t.Context(), c.site, "r")
			must(t, err)
		}
	}
}

func TestSignupTokenSurvivesKeyRotation(t *testing.T) {
	c := newCustomers(t)
	link := c.invite(t, "r")
	before := c.token(t, link)
	must(t, c.rotate(t))
	must(t, c.keys.Refresh(t.Context()))
	if after := c.token(t, link); after != before {
		t.Error("the token changed with the rotation")
	}
	_, err := c.store.CompleteSignup(t.Context(), c.keys, before, alice)
	must(t, err)
}
