package models_test

import (
	"context"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// noon is the frozen time of tests.
const noon = models.Millis(1_790_000_000_000)

// customers is a Site with everything that invitations need.
type customers struct {
	store *models.Store
	ring  *seal.Keyring
	keys  *models.Keys
	key   models.KeyID
	site  models.SiteID
}

func newCustomers(t testing.TB) *customers {
	t.Helper()
	return newCustomersOn(t, modelstest.Open(t))
}

func newCustomersOn(t testing.TB, store *models.Store) *customers {
	t.Helper()
	c := &customers{store: store}
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	must(t, err)
	c.ring = ring
	c.keys = models.NewKeys(c.store, ring)
	must(t, c.keys.Ensure(t.Context()))
	key, err := c.keys.Current(t.Context(), models.KeySignupLink)
	must(t, err)
	c.key = key.ID
	c.site = c.newSite(t)
	return c
}

func (c *customers) newSite(t testing.TB) models.SiteID {
	t.Helper()
	organisation, err := c.store.CreateOrganisation(t.Context(), "Harbour Power")
	must(t, err)
	site, err := c.store.CreateSite(t.Context(), organisation.ID, "North Quay")
	must(t, err)
	return site.ID
}

func (c *customers) create(ctx context.Context, reference string) (models.CustomerLink, error) {
	link, _, err := c.store.CreateInvitation(ctx, models.NewInvitation{
		SiteID: c.site, CustomerReference: reference, KeyID: c.key}, nil)
	return link, err
}

func (c *customers) invite(t testing.TB, reference string) models.CustomerLink {
	t.Helper()
	link, err := c.create(t.Context(), reference)
	must(t, err)
	return link
}

func (c *customers) token(t testing.TB, link models.CustomerLink) string {
	t.Helper()
	token, err := c.keys.SignupToken(t.Context(), link.ID, link.KeyID)
	must(t, err)
	return token
}

func (c *customers) complete(t testing.TB, link models.CustomerLink, party models.Party) (models.Signup, error) {
	t.Helper()
	return c.store.CompleteSignup(t.Context(), c.keys, c.token(t, link), party)
}

func (c *customers) state(t testing.TB, reference string) models.LinkState {
	t.Helper()
	link, err := c.store.Customer(t.Context(), c.site, reference)
	must(t, err)
	return link.State
}

func (c *customers) freeze(t testing.TB) { modelstest.SetClock(t, c.store, noon) }

func (c *customers) advance(t testing.TB, by time.Duration) { modelstest.AdvanceClock(t, c.store, by) }

// failer is the part of *testing.T and *rapid.T that checks need.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	alice = models.Party{CustomerID: "alice", AgreementID: "agreement-a"}
	bob   = models.Party{CustomerID: "bob", AgreementID: "agreement-b"}
)

// rotate replaces the key of sign-up links.
func (c *customers) rotate(t testing.TB) error {
	t.Helper()
	_, err := c.store.RotateKey(t.Context(), c.ring, models.KeySignupLink)
	return err
}
