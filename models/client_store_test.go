package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func newClient(t testing.TB, store *models.Store) models.Client {
	t.Helper()
	organisation, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	must(t, err)
	client, err := store.CreateClient(t.Context(), organisation.ID, "billing run", models.PartnerScopes)
	must(t, err)
	return client
}

func TestSiteBoundary(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	ours, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	must(t, err)
	theirs, err := store.CreateOrganisation(t.Context(), "Hill Water")
	must(t, err)
	site, err := store.CreateSite(t.Context(), ours.ID, "North Quay")
	must(t, err)
	if got, err := store.Site(t.Context(), ours.ID, site.ID); err != nil || got != site || got.Currency != "AUD" ||
		got.CreatedAt == 0 {
		t.Errorf("Site = %+v, %v; want %+v", got, err, site)
	}
	_, foreign := store.Site(t.Context(), theirs.ID, site.ID)
	_, unknown := store.Site(t.Context(), ours.ID, models.SiteID{1})
	_, ofNoOrganisation := store.Site(t.Context(), models.OrganisationID{}, site.ID)
	for _, err := range []error{foreign, unknown, ofNoOrganisation} {
		if !errors.Is(err, models.ErrNotFound) || err.Error() != foreign.Error() {
			t.Errorf("error %v, want the same ErrNotFound for all", err)
		}
	}
	if _, err := store.CreateSite(t.Context(), models.OrganisationID{1}, "Nowhere"); !errors.Is(err,
		models.ErrNotFound) {
		t.Errorf("a Site of no organisation: %v", err)
	}
	if sites, err := store.Sites(t.Context(), ours.ID); err != nil || !slices.Equal(sites, []models.Site{site}) {
		t.Errorf("Sites = %v, %v", sites, err)
	}
	if all, err := store.Organisations(t.Context()); err != nil ||
		!slices.Equal(all, []models.Organisation{ours, theirs}) {
		t.Errorf("Organisations = %v, %v", all, err)
	}
	if got, err := store.Organisation(t.Context(), theirs.ID); err != nil || got != theirs {
		t.Errorf("Organisation = %v, %v", got, err)
	}
	if _, err := store.Organisation(t.Context(), models.OrganisationID{1}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("unknown organisation: %v", err)
	}
}

func TestCreateClientScopes(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	organisation, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	must(t, err)
	tests := []struct {
		name         string
		organisation models.OrganisationID
		scopes       []models.Scope
		want         error
	}{
		{"partner", organisation.ID, models.PartnerScopes, nil},
		{"one scope", organisation.ID, []models.Scope{models.ScopeBatchesRead}, nil},
		{"customer app", models.OrganisationID{}, models.CustomerAppScopes, nil},
		{"partner with the app's", organisation.ID, []models.Scope{models.ScopeSignupsWrite}, models.ErrScopes},
		{"app with a partner's", models.OrganisationID{}, []models.Scope{models.ScopeBatchesRead}, models.ErrScopes},
		{"none", organisation.ID, nil, models.ErrScopes},
		{"unknown", organisation.ID, []models.Scope{"billing:everything"}, models.ErrScopes},
		{"twice", organisation.ID, []models.Scope{models.ScopeBatchesRead, models.ScopeBatchesRead}, models.ErrScopes},
		{"no organisation of that id", models.OrganisationID{1}, models.PartnerScopes, models.ErrNotFound},
	}
	for _, tt := range tests {
		client, err := store.CreateClient(t.Context(), tt.organisation, tt.name, tt.scopes)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		got, err := store.Client(t.Context(), client.ID)
		if err != nil || got.OrganisationID != tt.organisation || !slices.Equal(got.Scopes, tt.scopes) ||
			got.Disabled() ||
			got.Name != tt.name || got.CreatedAt != client.CreatedAt || got.CreatedAt == 0 || got.JWKS != nil {
			t.Errorf("%s: Client = %+v, %v", tt.name, got, err)
		}
	}
	if all, err := store.Clients(t.Context(), models.OrganisationID{}); err != nil || len(all) != 1 ||
		all[0].Name != "customer app" {
		t.Errorf("Clients = %v, %v", all, err)
	}
	if all, err := store.Clients(t.Context(), organisation.ID); err != nil || len(all) != 2 {
		t.Errorf("Clients = %v, %v", all, err)
	}
}

func TestClientSecrets(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	matches := func(secret string) bool {
		t.Helper()
		credentials, err := store.ClientCredentials(t.Context(), client.ID)
		must(t, err)
		return credentials.Match(secret)
	}
	add := func() string {
		t.Helper()
		secret, err := store.AddClientSecret(t.Context(), client.ID)
		must(t, err)
		return secret
	}
	if matches("") {
		t.Error("a client without secrets takes the empty one")
	}
	first := add()
	if !regexp.MustCompile(`^svcs_[A-Za-z0-9_-]{43}$`).MatchString(first) {
		t.Errorf("secret %q", first)
	}
	second := add()
	if first == second || !matches(first) || !matches(second) || matches("") || matches(first+"x") ||
		matches(first[1:]) {
		t.Error("both secrets must count, and nothing else")
	}
	if _, err := store.AddClientSecret(t.Context(), client.ID); !errors.Is(err, models.ErrTooManySecrets) {
		t.Errorf("a third secret: %v", err)
	}
	secrets, err := store.ClientSecrets(t.Context(), client.ID)
	must(t, err)
	if len(secrets) != 2 {
		t.Fatalf("secrets %v", secrets)
	}
	for _, secret := range secrets {
		must(t, store.RemoveClientSecret(t.Context(), client.ID, secret.Fingerprint))
	}
	if matches(first) || matches(second) {
		t.Error("a removed secret counts")
	}
	if err := store.RemoveClientSecret(t.Context(), client.ID, secrets[0].Fingerprint); !errors.Is(err,
		models.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := store.AddClientSecret(t.Context(), models.ClientID{1}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a secret of no client: %v", err)
	}
	var stored int
	must(t, store.DB().NewRaw("SELECT count(*) FROM client_secrets WHERE secret_hash = ?",
		[]byte(first)).Scan(t.Context(), &stored))
	if stored != 0 {
		t.Error("the secret itself is in the database")
	}
}

func TestNobodysCredentialsMatchNothing(t *testing.T) {
	t.Parallel()
	var zero models.ClientCredentials
	for _, secret := range []string{"", "svcs_", string(make([]byte, 32))} {
		if zero.Match(secret) {
			t.Errorf("the zero credentials match %q", secret)
		}
	}
}

func TestAddClientSecretAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	var adding sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		adding.Go(func() { _, errs[i] = store.AddClientSecret(t.Context(), client.ID) })
	}
	adding.Wait()
	added := 0
	for _, err := range errs {
		switch {
		case err == nil:
			added++
		case !errors.Is(err, models.ErrTooManySecrets):
			t.Error(err)
		}
	}
	if added != models.MaxClientSecrets {
		t.Errorf("%d secrets", added)
	}
}

func TestChangeClient(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client := newClient(t, store)
	get := func() models.Client {
		t.Helper()
		got, err := store.Client(t.Context(), client.ID)
		must(t, err)
		return got
	}
	must(t, store.DisableClient(t.Context(), client.ID))
	since := get().DisabledAt
	must(t, store.DisableClient(t.Context(), client.ID))
	if got := get(); !got.Disabled() || got.DisabledAt != since {
		t.Errorf("disabled twice: %v then %v", since, got.DisabledAt)
	}
	must(t, store.EnableClient(t.Context(), client.ID))
	if get().Disabled() {
		t.Error("not enabled")
	}
	must(t, store.SetClientScopes(t.Context(), client.ID, []models.Scope{models.ScopeBatchesRead}))
	if got := get().Scopes; !slices.Equal(got, []models.Scope{models.ScopeBatchesRead}) {
		t.Errorf("scopes %v", got)
	}
	if err := store.SetClientScopes(t.Context(), client.ID, models.CustomerAppScopes); !errors.Is(err,
		models.ErrScopes) {
		t.Errorf("the customer app's scopes: %v", err)
	}
	must(t, store.SetClientJWKS(t.Context(), client.ID, json.RawMessage(`{"keys": []}`)))
	if got := get().JWKS; string(got) != `{"keys": []}` {
		t.Errorf("jwks %s", got)
	}
	must(t, store.SetClientJWKS(t.Context(), client.ID, nil))
	if got := get().JWKS; got != nil {
		t.Errorf("jwks %s", got)
	}
	unknown := models.ClientID{1}
	for name, err := range map[string]error{
		"disable": store.DisableClient(t.Context(), unknown),
		"enable":  store.EnableClient(t.Context(), unknown),
		"scopes":  store.SetClientScopes(t.Context(), unknown, models.PartnerScopes),
		"jwks":    store.SetClientJWKS(t.Context(), unknown, nil),
	} {
		if !errors.Is(err, models.ErrNotFound) {
			t.Errorf("%s of an unknown client: %v", name, err)
		}
	}
	if _, err := store.ClientCredentials(t.Context(), unknown); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("credentials of an unknown client: %v", err)
	}
}

func TestUseAssertion(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	client, other := models.ClientID{1}, models.ClientID{2}
	later := models.MillisOf(time.Now()).Add(time.Hour)
	must(t, store.UseAssertion(t.Context(), client, "one", later))
	if err := store.UseAssertion(t.Context(), client, "one", later); !errors.Is(err, models.ErrAssertionUsed) {
		t.Errorf("used twice: %v", err)
	}
	must(t, store.UseAssertion(t.Context(), other, "one", later))
	must(t, store.UseAssertion(t.Context(), client, "any \x00 text", later))

	var using sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		using.Go(func() { errs[i] = store.UseAssertion(t.Context(), client, "two", later) })
	}
	using.Wait()
	if used := slices.DeleteFunc(errs, func(err error) bool {
		return errors.Is(err, models.ErrAssertionUsed)
	}); len(used) != 1 || used[0] != nil {
		t.Errorf("used at once: %v", used)
	}

	for range 20 {
		must(t, store.UseAssertion(t.Context(), client, string(models.NewTraceID()), 1))
	}
	for range 3 {
		must(t, store.UseAssertion(t.Context(), client, string(models.NewTraceID()), later))
	}
	n, err := store.DropExpiredAssertions(t.Context(), 50)
	must(t, err)
	if n != 20 {
		t.Errorf("%d expired ones dropped", n)
	}
	var left int
	must(t, store.DB().NewRaw("SELECT count(*) FROM client_assertions WHERE expires_at < ?", later).Scan(t.Context(),
		&left))
	if left != 0 {
		t.Errorf("%d expired ones are left", left)
	}
}

// The entry of a refused name says what the act was about.
func TestRefusedNamesAreRecorded(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	organisation := modelstest.Site(t, store).OrganisationID
	for name, add := range map[models.ActName]func(context.Context) error{
		models.ActAddOrganisation: func(ctx context.Context) error {
			_, err := store.CreateOrganisation(ctx, "a\x00b")
			return err
		},
		models.ActAddSite: func(ctx context.Context) error {
			_, err := store.CreateSite(ctx, organisation, "a\x00b")
			return err
		},
		models.ActAddClient: func(ctx context.Context) error {
			_, err := store.CreateClient(ctx, organisation, "a\x00b", models.PartnerScopes)
			return err
		},
	} {
		ctx := actBy(t.Context(), "jane", name)
		must(t, store.EndAct(ctx, add(ctx)))
		e := newestEntry(t, store)
		if e.Act != name || e.Outcome != models.ActRefused || e.Code != "invalidName" || e.Subject == "" {
			t.Errorf("%s: entry %+v", name, e)
		}
	}
}

// Names are shown to customers and operators, so they cannot deceive.
func TestNamesAreVisible(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	organisation, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a\u202eb", "Harbour\u200bPower", "a\nb", "a\xff", strings.Repeat("x", 129)} {
		_, err := store.CreateOrganisation(t.Context(), name)
		_, siteErr := store.CreateSite(t.Context(), organisation.ID, name)
		_, clientErr := store.CreateClient(t.Context(), organisation.ID, name, models.PartnerScopes)
		for _, err := range []error{err, siteErr, clientErr} {
			if !errors.Is(err, models.ErrName) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}
