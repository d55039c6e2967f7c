package models_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// Acknowledgement names the operator, and ends with the alert: one that is raised again has none.
func TestAcknowledgedAlerts(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	raise := func() {
		t.Helper()
		_, err := store.DB().ExecContext(t.Context(), "SELECT raise_alert('lateTruth', 'key', NULL, NULL, 'x', '')")
		must(t, err)
	}
	open := func(by string) {
		t.Helper()
		alerts, err := store.OpenAlerts(t.Context(), 10)
		must(t, err)
		if len(alerts) != 1 || alerts[0].AcknowledgedBy != by || (alerts[0].AcknowledgedAt != 0) != (by != "") {
			t.Errorf("alerts %+v, want one acknowledged by %q", alerts, by)
		}
	}
	if err := store.AcknowledgeAlert(t.Context(), models.AlertLateTruth, "key"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("no alert: %v", err)
	}
	raise()
	open("")
	must(t, store.AcknowledgeAlert(actOf(t, models.ActAcknowledgeAlert, ""), models.AlertLateTruth, "key"))
	raise()
	open("jane")
	must(t, store.CloseAlert(t.Context(), models.AlertLateTruth, "key"))
	raise()
	open("")
}

// All alerts of a kind and an organisation are closed at once, and no others.
func TestCloseOrganisationAlerts(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	told, other := modelstest.Site(t, store), modelstest.Site(t, store)
	raise := func(kind, subject string, site models.Site) {
		t.Helper()
		_, err := store.DB().ExecContext(t.Context(), "SELECT raise_alert(?, ?, ?, ?, 'x', '')",
			kind, subject, site.OrganisationID, site.ID)
		must(t, err)
	}
	raise(models.AlertLateTruth, "one", told)
	raise(models.AlertLateTruth, "two", told)
	raise("railForgot", "three", told)
	raise(models.AlertLateTruth, "four", other)
	n, err := store.CloseOrganisationAlerts(t.Context(), models.AlertLateTruth, told.OrganisationID)
	if n != 2 || err != nil {
		t.Errorf("closed %d alerts, %v", n, err)
	}
	open, err := store.OpenAlerts(t.Context(), 10)
	must(t, err)
	subjects := make([]string, len(open))
	for i, a := range open {
		subjects[i] = a.Subject
	}
	slices.Sort(subjects)
	if !slices.Equal(subjects, []string{"four", "three"}) {
		t.Errorf("still open: %q", subjects)
	}
	_, err = store.CloseOrganisationAlerts(t.Context(), models.AlertLateTruth, told.OrganisationID)
	if !errors.Is(err, models.ErrNotFound) {
		t.Errorf("no alert: %v", err)
	}
}

// bare returns the id as tables hold it, without its prefix.
func bare(id fmt.Stringer) string {
	_, text, _ := strings.Cut(id.String(), "_")
	return text
}

// An operator finds what a partner names, by each of its names.
func TestSearch(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	link := modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	batch := modelstest.Batch(site, "november", "ada")
	done := modelstest.Submit(t, store, batch)
	trace := models.NewTraceID()
	intent, _, err := store.CreatePaymentIntent(models.WithTraceID(t.Context(), trace), models.NewPaymentIntent{
		SiteID: site.ID, Amount: 100, QRCodeFormat: models.QRCodeText, OrderID: "order 7",
	}, nil)
	must(t, err)
	// References that look like ids.
	alike := map[string]models.PaymentIntent{
		uuid.NewString(): {}, strings.ReplaceAll(uuid.NewString(), "-", ""): {}, "pi_" + uuid.NewString(): {},
	}
	for reference := range alike {
		alike[reference], _, err = store.CreatePaymentIntent(t.Context(), models.NewPaymentIntent{
			SiteID: site.ID, Amount: 100, QRCodeFormat: models.QRCodeText, OrderID: reference,
		}, nil)
		must(t, err)
	}
	client, _, err := store.CreateClientWithSecret(t.Context(), site.OrganisationID, "Till of Harbour",
		models.PartnerScopes)
	must(t, err)
	organisation, err := store.Organisation(t.Context(), site.OrganisationID)
	must(t, err)
	wanted := map[string]models.Hit{
		site.OrganisationID.String():       {Kind: models.HitOrganisation, ID: site.OrganisationID.String()},
		organisation.Name[1:]:              {Kind: models.HitOrganisation, ID: site.OrganisationID.String()},
		site.ID.String():                   {Kind: models.HitSite, ID: site.ID.String()},
		client.ID.String():                 {Kind: models.HitClient, ID: client.ID.String()},
		"of harbour":                       {Kind: models.HitClient, ID: client.ID.String()},
		link.ID.String():                   {Kind: models.HitCustomer, ID: "ada"},
		" ada ":                            {Kind: models.HitCustomer, ID: "ada"},
		done.Batch.ID.String():             {Kind: models.HitBatch, ID: "november"},
		"november":                         {Kind: models.HitBatch, ID: "november"},
		string(batch.TraceID):              {Kind: models.HitBatch, ID: "november"},
		done.Batch.RailKeys().Row("row-0"): {Kind: models.HitBatch, ID: "november"},
		intent.ID.String():                 {Kind: models.HitPaymentIntent, ID: intent.ID.String()},
		"order 7":                          {Kind: models.HitPaymentIntent, ID: intent.ID.String()},
		string(trace):                      {Kind: models.HitPaymentIntent, ID: intent.ID.String()},
		models.PaymentRailKey(intent.ID):   {Kind: models.HitPaymentIntent, ID: intent.ID.String()},
		bare(site.OrganisationID):          {Kind: models.HitOrganisation, ID: site.OrganisationID.String()},
		bare(site.ID):                      {Kind: models.HitSite, ID: site.ID.String()},
		bare(client.ID):                    {Kind: models.HitClient, ID: client.ID.String()},
		bare(link.ID):                      {Kind: models.HitCustomer, ID: "ada"},
		bare(done.Batch.ID):                {Kind: models.HitBatch, ID: "november"},
		bare(intent.ID):                    {Kind: models.HitPaymentIntent, ID: intent.ID.String()},
		bare(models.NewPaymentIntentID()):  {},
		models.PaymentRailKey(models.NewPaymentIntentID()): {},
		models.NewWebhookEventID().String():                {},
		string(models.NewTraceID()):                        {},
		"r1_unknown":                                       {},
		"":                                                 {},
		"two\nlines":                                       {},
	}
	for reference, intent := range alike {
		wanted[reference] = models.Hit{Kind: models.HitPaymentIntent, ID: intent.ID.String()}
	}
	for text, want := range wanted {
		hits, err := store.Search(t.Context(), text)
		must(t, err)
		if want == (models.Hit{}) {
			if len(hits) != 0 {
				t.Errorf("%q: %+v, want nothing", text, hits)
			}
			continue
		}
		if len(hits) != 1 || hits[0].Kind != want.Kind || hits[0].ID != want.ID ||
			hits[0].OrganisationID != site.OrganisationID {
			t.Errorf("%q: %+v, want %s %s", text, hits, want.Kind, want.ID)
		}
	}
}

// Stories name rail keys, events and alerts.
func TestStories(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "november", "ada", "bob"))
	key := done.Batch.RailKeys().Row("row-1")
	_, err := store.DB().ExecContext(t.Context(), "SELECT raise_alert('railConflict', ?, NULL, NULL, 'x', '')", key)
	must(t, err)
	must(t, store.PauseDebits(t.Context(), site.OrganisationID))
	story, err := store.BatchStory(t.Context(), site.ID, "november")
	must(t, err)
	if len(story.Rows) != 2 || story.Rows[1].RailKey != key || story.Rows[1].RowReference != "row-1" || !story.Paused ||
		len(story.Alerts) != 1 || story.Rows[0].LinkID.IsZero() || !story.Rows[1].LinkID.IsZero() {
		t.Errorf("batch story %+v", story)
	}
	if _, err := store.BatchStory(t.Context(), site.ID, "december"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown batch: %v", err)
	}
	intent := modelstest.Intent(t, store, site.ID, 500)
	modelstest.Pay(t, store, intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
	payment, err := store.PaymentStory(t.Context(), intent.ID)
	must(t, err)
	if payment.RailKey != models.PaymentRailKey(intent.ID) || payment.Intent.State != models.IntentPending ||
		payment.RecordedAt != 0 || len(payment.Events) != 0 {
		t.Errorf("payment story %+v", payment)
	}
	if _, err := store.PaymentStory(t.Context(), models.NewPaymentIntentID()); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown payment: %v", err)
	}
}

// Lanes show each Site's waiting tasks and their age; dispatched tasks are in flight.
func TestLanes(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	for _, reference := range []string{"first", "second"} {
		modelstest.Submit(t, store, modelstest.Batch(site, reference, "ada"))
	}
	modelstest.AdvanceClock(t, store, time.Minute)
	claimed, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 1, InFlight: 1})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%d tasks, %v", len(claimed), err)
	}
	lanes, err := store.Lanes(t.Context(), 10)
	must(t, err)
	if len(lanes) != 1 {
		t.Fatalf("lanes %+v", lanes)
	}
	l := lanes[0]
	if l.Queue != models.QueueDebits || l.SiteID != site.ID || l.Waiting != 1 || l.Due != 1 || l.InFlight != 1 ||
		l.OldestDue != 60_000 || l.Organisation == "" || l.Site == "" {
		t.Errorf("lane %+v", l)
	}
}

// A limit keeps the lanes that have waited longest, whatever the order of their ids.
func TestLanesKeepTheOldest(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	var sites []models.Site
	for range 3 {
		sites = append(sites, modelstest.Site(t, store))
	}
	slices.SortFunc(sites, func(a, b models.Site) int {
		return strings.Compare(b.OrganisationID.String(), a.OrganisationID.String())
	})
	for _, site := range sites { // the last organisation in the order of ids waits longest
		modelstest.Submit(t, store, modelstest.Batch(site, "batch", "ada"))
		modelstest.AdvanceClock(t, store, time.Minute)
	}
	lanes, err := store.Lanes(t.Context(), 2)
	if err != nil || len(lanes) != 2 || lanes[0].SiteID != sites[0].ID || lanes[1].SiteID != sites[1].ID {
		t.Errorf("%+v, %v, want the lanes of %v", lanes, err, sites[:2])
	}
}

// An unparked endpoint is enabled, its breaker is closed, and its parked events are due.
func TestUnparkWebhookEndpoint(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	organisation, deflt := site.OrganisationID, models.SiteID{}
	unpark := func() error { return store.UnparkWebhookEndpoint(t.Context(), organisation, deflt) }
	if err := unpark(); !errors.Is(err, models.ErrNoWebhookEndpoint) {
		t.Errorf("without an endpoint: %v", err)
	}
	ring := modelstest.Keyring(t, seal.GenerateMasterKey())
	_, _, err := store.PutWebhookEndpoint(t.Context(), ring, organisation, deflt,
		"https://partner.example/secret?key=1")
	must(t, err)
	if err := unpark(); !errors.Is(err, models.ErrNotBlocked) {
		t.Errorf("a healthy endpoint: %v", err)
	}
	for failures := models.FailingThreshold - 1; failures <= models.FailingThreshold; failures++ {
		_, err = store.DB().ExecContext(t.Context(), "UPDATE webhook_endpoints SET failures = ?", failures)
		must(t, err)
		troubled, err := store.TroubledEndpoints(t.Context(), 10)
		if err != nil || len(troubled) == 1 != (failures == models.FailingThreshold) {
			t.Errorf("%d failures in a row: %+v, %v", failures, troubled, err)
		}
	}
	_, err = store.DB().ExecContext(t.Context(), `
UPDATE webhook_endpoints SET failures = 12, open_until = svc_now() + 60000, disabled_at = svc_now()`)
	must(t, err)
	troubled, err := store.TroubledEndpoints(t.Context(), 10)
	must(t, err)
	if len(troubled) != 1 || troubled[0].Failures != 12 || troubled[0].DisabledAt == 0 || troubled[0].OpenUntil == 0 ||
		troubled[0].Host != "partner.example" {
		t.Errorf("troubled endpoints %+v", troubled)
	}
	must(t, unpark())
	endpoint, err := store.WebhookEndpoint(t.Context(), organisation, deflt)
	must(t, err)
	if endpoint.State() != models.WebhookEndpointActive || endpoint.Breaker.Failures != 0 {
		t.Errorf("after unparking %+v", endpoint)
	}
	if troubled, err = store.TroubledEndpoints(t.Context(), 10); len(troubled) != 0 || err != nil {
		t.Errorf("after unparking: %+v, %v", troubled, err)
	}
}

// Dead letters are counted by organisation and status.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Site(t, store) // of another organisation, without events
	modelstest.SetClock(t, store, noon)
	modelstest.Intent(t, store, site.ID, 500)
	modelstest.AdvanceClock(t, store, models.DefaultIntentLife)
	if _, err := store.ExpirePaymentIntents(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	letters, err := store.DeadLetters(t.Context(), 10)
	must(t, err)
	if len(letters) != 1 || letters[0].OrganisationID != site.OrganisationID || letters[0].Undelivered != 1 ||
		letters[0].Failed != 0 || letters[0].Parked != 0 {
		t.Errorf("dead letters %+v", letters)
	}
}

// The organisation that has waited longest comes first. Work that is not due yet does not count.
func TestPartnerBacklogs(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	sites := []models.Site{modelstest.Site(t, store), modelstest.Site(t, store)}
	if sites[0].OrganisationID.String() < sites[1].OrganisationID.String() {
		slices.Reverse(sites) // the order of ages is not that of ids
	}
	for _, site := range sites {
		modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
		modelstest.AdvanceClock(t, store, 2*time.Second)
	}
	modelstest.Submit(t, store, modelstest.Batch(sites[0], "younger", "ada"))
	modelstest.Submit(t, store, modelstest.Batch(modelstest.Site(t, store), "not due yet", "ada"))
	got, err := store.PartnerBacklogs(t.Context())
	must(t, err)
	want := []models.PartnerBacklog{
		{Queue: models.QueueDebits, OrganisationID: sites[0].OrganisationID, OldestDue: 4000},
		{Queue: models.QueueDebits, OrganisationID: sites[1].OrganisationID, OldestDue: 2000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backlogs (-want +got):\n%s", diff)
	}
}

// The Sites of an organisation have one backlog: that of the Site that has waited longest.
func TestPartnerBacklogOfTwoSites(t *testing.T) {
	t.Parallel()
	for _, oldest := range []int{0, 1} {
		store := modelstest.Open(t)
		modelstest.SetClock(t, store, 1_800_000_000_000)
		first := modelstest.Site(t, store)
		second, err := store.CreateSite(t.Context(), first.OrganisationID, "South Quay")
		must(t, err)
		sites := []models.Site{first, second}
		for i := range sites {
			modelstest.Submit(t, store, modelstest.Batch(sites[(oldest+i)%2], "b", "ada"))
			modelstest.AdvanceClock(t, store, 2*time.Second)
		}
		got, err := store.PartnerBacklogs(t.Context())
		must(t, err)
		want := []models.PartnerBacklog{{
			Queue: models.QueueDebits, OrganisationID: first.OrganisationID, OldestDue: 4000,
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("backlogs if Site %d waits longest (-want +got):\n%s", oldest, diff)
		}
	}
}
