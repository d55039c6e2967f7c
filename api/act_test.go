package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// businessRoutes are the changing routes whose effects are records of their own: they are not acts.
var businessRoutes = []string{
	"POST /billing/sites/{siteId}/batches", "POST /billing/sites/{siteId}/batches/validation",
	"POST /billing/sites/{siteId}/customers/invitations",
	"POST /billing/sites/{siteId}/customers/{customerReference}/invitation-link",
	"POST /checkout/{siteId}/payment-intent", "POST /customer-app/payment-intents/{code}/transactions",
	"POST /customer-app/signups/{token}/completion", "POST /sandbox/clock",
	"POST /sandbox/payment-intents/{paymentIntentId}/payment",
	"POST /sandbox/sites/{siteId}/customers/{customerReference}/signup",
}

// actRoute is a call of a route that is an act.
type actRoute struct {
	prepare func() (path string, body any) // a subject of its own
	subject models.SubjectKind
	byApp   bool
}

// Each route that changes a partner's configuration leaves an entry in the audit log, and changes
// nothing if the entry cannot be written.
func TestEveryConfigurationRouteIsRecorded(t *testing.T) {
	h := newHooks(t, nil)
	h.put("default", h.receiver.URL+"/ok")
	h.put(h.site.String(), h.receiver.URL+"/ok")
	cases := h.actRoutes()
	var others []string
	acts := map[models.ActName]bool{}
	for _, r := range h.routes {
		if r.Method == http.MethodGet || r.Audience == api.Public {
			continue
		}
		name := r.Method + " " + r.Path
		if r.Act == "" {
			others = append(others, name)
			continue
		}
		acts[r.Act] = true
		c, ok := cases[name]
		if !ok {
			t.Errorf("%s has no case", name)
			continue
		}
		h.checkAct(r, c)
	}
	slices.Sort(others)
	if diff := cmp.Diff(businessRoutes, others); diff != "" {
		t.Errorf("routes without an act (-listed +found):\n%s", diff)
	}
	want := slices.Sorted(slices.Values(models.ClientActs))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(acts))); diff != "" {
		t.Errorf("acts (-models +routes):\n%s", diff)
	}
}

func (h *hooks) checkAct(r api.Route, c actRoute) {
	h.t.Helper()
	client := h.Client
	if c.byApp {
		client = h.app
	}
	path, body := c.prepare()
	before, accept := modelstest.State(h.t, h.store), modelstest.RefuseAuditEntries(h.t, h.store)
	client.Send(r.Method, path, body).Expect(http.StatusInternalServerError)
	accept()
	if diff := cmp.Diff(before, modelstest.State(h.t, h.store)); diff != "" {
		h.t.Errorf("%s without an entry changed tables:\n%s", r.Path, diff)
	}
	entries := len(h.auditLog())
	answer := client.Send(r.Method, path, body)
	if answer.Status >= http.StatusBadRequest {
		h.t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	h.checkEntry(r, c, answer, entries)
}

func (h *hooks) checkEntry(r api.Route, c actRoute, answer *apitest.Answer, entries int) {
	h.t.Helper()
	log := h.auditLog()
	if len(log) != entries+1 {
		h.t.Errorf("%s %s left %d entries", r.Method, r.Path, len(log)-entries)
		return
	}
	e := log[0]
	if e.Act != r.Act || e.ActorKind != models.ActorClient || e.SubjectKind != c.subject ||
		e.Outcome != models.ActDone || e.Origin != "127.0.0.1" || e.OrganisationID != h.owner ||
		string(e.TraceID) != answer.TraceID() || (e.Actor == h.client.String()) == c.byApp {
		h.t.Errorf("%s %s: %+v", r.Method, r.Path, e)
	}
	for _, secret := range []string{h.receiver.URL + "/ok", "whsec_", "acct-"} {
		if strings.Contains(string(e.Detail)+e.Subject, secret) {
			h.t.Errorf("%s %s records %s: %s %s", r.Method, r.Path, secret, e.Subject, e.Detail)
		}
	}
}

func (h *hooks) auditLog() []models.AuditEntry {
	h.t.Helper()
	entries, err := h.store.AuditLog(h.t.Context(), models.AuditFilter{}, models.AuditPosition{}, 1000)
	check(h.t, err)
	return entries
}

func (h *hooks) actRoutes() map[string]actRoute {
	n := 0
	fresh := func(prefix string) string {
		n++
		return fmt.Sprintf("%s%d", prefix, n)
	}
	site := models.Site{ID: h.site, OrganisationID: h.owner}
	at := func(path string, body any) func() (string, any) {
		return func() (string, any) { return path, body }
	}
	event := func() string {
		id, _ := h.insert()
		return "/webhooks/events/" + id.String() + "/redelivery"
	}
	endpoint := func(name string) map[string]actRoute {
		path := "/webhooks/endpoints/" + name
		fixed := strings.ReplaceAll(path, "{siteId}", h.site.String())
		configured := func(path string) func() (string, any) {
			return func() (string, any) {
				h.put(strings.TrimPrefix(fixed, "/webhooks/endpoints/"), h.receiver.URL+"/ok")
				return path, nil
			}
		}
		put := map[string]any{"url": h.receiver.URL + "/ok", "events": []string{"transactionStatus", "batchSettled"}}
		return map[string]actRoute{
			"PUT " + path:            {at(fixed, put), models.SubjectWebhookEndpoint, false},
			"POST " + path + "/test": {configured(fixed + "/test"), models.SubjectWebhookEndpoint, false},
			"DELETE " + path:         {configured(fixed), models.SubjectWebhookEndpoint, false},
		}
	}
	routes := map[string]actRoute{
		"POST /webhooks/secret/rotation": {at("/webhooks/secret/rotation", nil), models.SubjectWebhookSecret, false},
		"POST /webhooks/events/{idempotencyKey}/redelivery": {func() (string, any) { return event(), nil },
			models.SubjectWebhookEvent, false},
		"POST /webhooks/events/redelivery": {func() (string, any) {
			h.insert()
			return "/webhooks/events/redelivery", map[string]any{"type": "transactionStatus"}
		}, models.SubjectWebhookEvent, false},
		"POST /billing/sites/{siteId}/customers/{customerReference}/revocation": {func() (string, any) {
			reference := fresh("acct-")
			modelstest.Invite(h.t, h.store, h.site, reference)
			return h.customer(reference, "/revocation"), nil
		}, models.SubjectCustomerLink, false},
		"POST /customer-app/links/{linkId}/revocation": {func() (string, any) {
			link := modelstest.Invite(h.t, h.store, h.site, fresh("acct-"))
			return "/customer-app/links/" + link.ID.String() + "/revocation", nil
		}, models.SubjectCustomerLink, true},
		"POST /billing/sites/{siteId}/batches/{batchReference}/cancellation": {func() (string, any) {
			reference := fresh("batch ")
			modelstest.Submit(h.t, h.store, modelstest.Batch(site, reference, "ada"))
			return h.batch(reference, "/cancellation"), nil
		}, models.SubjectBatch, false},
		"POST /billing/sites/{siteId}/batches/{batchReference}/retry": {func() (string, any) {
			reference := fresh("batch ")
			task := modelstest.Submit(h.t, h.store, modelstest.Batch(site, reference, "ada")).Tasks[0]
			h.fail(task)
			return h.batch(reference, "/retry"), map[string]any{"batchReference": reference + " again"}
		}, models.SubjectBatch, false},
		"POST /checkout/{siteId}/payment-intent/{paymentIntentId}/cancellation": {func() (string, any) {
			intent := modelstest.Intent(h.t, h.store, h.site, 500)
			return h.intents("/" + intent.ID.String() + "/cancellation"), nil
		}, models.SubjectPaymentIntent, false},
	}
	maps.Copy(routes, endpoint("default"))
	maps.Copy(routes, endpoint("{siteId}"))
	return routes
}

// fail settles the rows of a task with an outcome that a retry may improve.
func (h *hooks) fail(task models.TaskID) {
	h.t.Helper()
	chunk, err := h.store.ClaimChunk(h.t.Context(), task, models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	check(h.t, err)
	result := models.RowResult{Outcome: models.OutcomeInsufficientFunds, RailKey: chunk.Rows[0].RailKey}
	_, err = h.store.FinishRows(h.t.Context(), chunk, []models.RowResult{result}, chunk.Open)
	check(h.t, err)
}

// A repetition that changes nothing, and a refusal, leave no entry.
func TestUnchangedAndRefusedCallsLeaveNoEntry(t *testing.T) {
	h := newHooks(t, nil)
	modelstest.Invite(t, h.store, h.site, "ada")
	intent := modelstest.Intent(t, h.store, h.site, 500)
	for _, path := range []string{
		h.customer("ada", "/revocation"), h.intents("/" + intent.ID.String() + "/cancellation"),
	} {
		h.Post(path, nil).Expect(http.StatusOK)
		entries := len(h.auditLog())
		h.Post(path, nil).Expect(http.StatusOK)
		if got := len(h.auditLog()); got != entries || entries == 0 {
			t.Errorf("%s: %d entries, then %d", path, entries, got)
		}
	}
	entries := len(h.auditLog())
	h.Post(h.customer("bob", "/revocation"), nil).Expect(http.StatusNotFound)
	h.Send(http.MethodDelete, "/webhooks/endpoints/default", nil).Expect(http.StatusNotFound)
	h.WithToken("stranger").Post(h.customer("ada", "/revocation"), nil).Expect(http.StatusForbidden)
	if got := len(h.auditLog()); got != entries {
		t.Errorf("refusals left %d entries", got-entries)
	}
}
