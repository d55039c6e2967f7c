package api_test

import (
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/web"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// noon is the time of a frozen clock.
const noon = models.Millis(1_790_000_000_000)

const week = 7 * 24 * time.Hour

const publicURL = "https://billing.example"

// billing is the real API on a real database, with two organisations.
type billing struct {
	*apitest.Client // calls for the Site's organisation; sends the version header
	app             *apitest.Client
	other           *apitest.Client // calls for the other organisation
	store           *models.Store
	routes          []api.Route
	client          models.ClientID // of the calls
	site            models.SiteID
	sister          models.SiteID // another Site of the same organisation
	otherSite       models.SiteID
}

func newBilling(t testing.TB, change func(*api.Config)) *billing {
	t.Helper()
	return newBillingOn(t, modelstest.Open(t), change)
}

// newBillingOn returns a billing on the given store.
func newBillingOn(t testing.TB, store *models.Store, change func(*api.Config)) *billing {
	t.Helper()
	b := &billing{store: store, client: models.ClientID(uuid.New())}
	modelstest.SetClock(t, b.store, noon)
	owner := b.organisation(t, "Harbour Power", &b.site, &b.sister)
	stranger := b.organisation(t, "Hill Water", &b.otherSite)
	cfg := api.Config{
		Authenticator: callers{
			"owner":    {ClientID: b.client, OrganisationID: owner, Scopes: models.PartnerScopes},
			"stranger": {ClientID: models.ClientID(uuid.New()), OrganisationID: stranger, Scopes: models.PartnerScopes},
			"app":      {ClientID: models.ClientID(uuid.New()), Scopes: models.CustomerAppScopes},
		},
		Sites: b.store, Store: b.store, Keys: newKeys(t, b.store), PublicBaseURL: publicURL,
		Sandbox: &api.Sandbox{Clock: true, Loopback: true}, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	server := api.New(cfg)
	b.routes = server.Routes()
	client := apitest.New(t, server)
	b.app = client.WithToken("app")
	client = client.With("Svc-Api-Version", api.APIVersion)
	b.Client, b.other = client.WithToken("owner"), client.WithToken("stranger")
	return b
}

func newKeys(t testing.TB, store *models.Store) *models.Keys {
	t.Helper()
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	keys := models.NewKeys(store, ring)
	if err := keys.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return keys
}

func (b *billing) organisation(t testing.TB, name string, sites ...*models.SiteID) models.OrganisationID {
	t.Helper()
	o, err := b.store.CreateOrganisation(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range sites {
		s, err := b.store.CreateSite(t.Context(), o.ID, "North Quay")
		if err != nil {
			t.Fatal(err)
		}
		*id = s.ID
	}
	return o.ID
}

// customers returns a path below the Site's customers.
func (b *billing) customers(path string) string {
	return "/billing/sites/" + b.site.String() + "/customers" + path
}

func (b *billing) customer(reference, path string) string {
	return b.customers("/" + url.PathEscape(reference) + path)
}

func (b *billing) advance(t testing.TB, by time.Duration) { modelstest.AdvanceClock(t, b.store, by) }

// invitation is the data of an invitation.
type invitation struct {
	CustomerReference, State, SignupURL string
	InvitedAt, ExpiresAt                models.Millis
}

// invite invites a customer and returns the path of the sign-up page.
func (b *billing) invite(t testing.TB, reference string) string {
	t.Helper()
	var data invitation
	b.Post(b.customers("/invitations"), map[string]any{"customerReference": reference}).Expect(201).Data(&data)
	return data.SignupURL[len(publicURL):]
}

func (b *billing) token(t testing.TB, reference string) string {
	t.Helper()
	return b.invite(t, reference)[len("/signup/"):]
}

// customerSummary is the data of a customer.
type customerSummary struct {
	CustomerReference, State       string
	InvitedAt, ExpiresAt, LinkedAt models.Millis
}

func (b *billing) state(reference string) string {
	var c customerSummary
	b.Get(b.customer(reference, "")).Expect(200).Data(&c)
	return c.State
}

// appLink returns a deep link as a deployment would configure it.
func appLink(t testing.TB) web.AppLink {
	t.Helper()
	link, err := web.ParseAppLink("https://app.example/open/{path}")
	if err != nil {
		t.Fatal(err)
	}
	return link
}
