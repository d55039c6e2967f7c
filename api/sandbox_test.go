package api_test

import (
	"slices"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/models"
)

func (b *billing) sandboxSignup(reference string) string {
	return "/sandbox/sites/" + b.site.String() + "/customers/" + reference + "/signup"
}

func TestSandboxSignup(t *testing.T) {
	b := newBilling(t, nil)
	golden(t, "sandbox-signup-not-found", b.Post(b.sandboxSignup("r"), nil).Expect(404))
	b.invite(t, "r")
	golden(t, "sandbox-signup-behaviour", b.Post(b.sandboxSignup("r"), `{"behaviour":"Pays"}`).Expect(400))
	golden(t, "sandbox-signup", b.Post(b.sandboxSignup("r"), `{"behaviour":"answerLost"}`).Expect(200))
	golden(t, "sandbox-signup-linked", b.Post(b.sandboxSignup("r"), nil).Expect(409))
	b.Post(b.customer("r", "/revocation"), nil).Expect(200)
	golden(t, "sandbox-signup-revoked", b.Post(b.sandboxSignup("r"), nil).Expect(410))
	b.invite(t, "r")
	b.advance(t, week)
	golden(t, "sandbox-signup-expired", b.Post(b.sandboxSignup("r"), nil).Expect(410))
	b.other.Post(b.sandboxSignup("r"), nil).Refused(403, "sites:site-not-accessible siteId")
}

func TestSandboxSignupBehaviours(t *testing.T) {
	b := newBilling(t, nil)
	for _, behaviour := range models.Behaviours {
		b.invite(t, string(behaviour))
		b.Post(b.sandboxSignup(string(behaviour)), map[string]any{"behaviour": behaviour}).Expect(200)
	}
	for body, reference := range map[string]string{"": "none", "{}": "empty", `{"behaviour":null}`: "null"} {
		b.invite(t, reference)
		b.Post(b.sandboxSignup(reference), body).Expect(200)
	}
	for _, behaviour := range append(slices.Clone(models.Behaviours), "none", "empty", "null") {
		customer, err := b.store.ExportCustomer(t.Context(), b.site, string(behaviour))
		if err != nil {
			t.Fatal(err)
		}
		want := behaviour
		if _, err := models.ParseBehaviour(string(behaviour)); err != nil {
			want = models.BehaviourPays
		}
		var got models.Behaviour
		err = b.store.DB().NewRaw("SELECT behaviour FROM sandbox_accounts WHERE agreement_id = ?",
			customer.Links[0].AgreementID).Scan(t.Context(), &got)
		if err != nil || got != want {
			t.Errorf("%s has an account that %s, %v", behaviour, got, err)
		}
	}
}

func TestSandboxClock(t *testing.T) {
	b := newBilling(t, nil)
	page := b.invite(t, "r")
	golden(t, "sandbox-clock-untouched", b.Get("/sandbox/clock").Expect(200))
	golden(t, "sandbox-clock", b.Post("/sandbox/clock", `{"advanceMs":604800000}`).Expect(200))
	golden(t, "sandbox-clock-read", b.Get("/sandbox/clock").Expect(200))
	if got := b.state("r"); got != "expired" {
		t.Errorf("the invitation is %s", got)
	}
	b.Get(page).Expect(410)
	b.app.Get("/sandbox/clock").Refused(403, "auth:insufficient-scope")
	b.Post("/sandbox/clock", `{"advanceMs":0}`).Expect(200)
	for body, fault := range map[string]string{
		`{}`: "requests:missing-field advanceMs", `{"advanceMs":null}`: "requests:missing-field advanceMs",
		`{"advanceMs":-1}`: "requests:invalid-field advanceMs", `{"advanceMs":1.5}`: "requests:invalid-field advanceMs",
		`{"advanceMs":34560000001}`:          "requests:invalid-field advanceMs",
		`{"advanceMs":9223372036854775808}`:  "requests:invalid-field advanceMs",
		`{"advanceMs":-9223372036854775809}`: "requests:invalid-field advanceMs",
	} {
		b.Post("/sandbox/clock", body).Refused(400, fault)
	}
	for range 90 {
		b.Post("/sandbox/clock", `{"advanceMs":34560000000}`).Expect(200)
	}
	b.Post("/sandbox/clock", `{"advanceMs":34560000000}`).Expect(200)
	b.Post("/sandbox/clock", `{"advanceMs":34560000000}`).Refused(400, "requests:invalid-field advanceMs")
	b.app.Post("/sandbox/clock", `{"advanceMs":1}`).Refused(403, "auth:insufficient-scope")
}

// A step of the clock settles overdue batches before the answer, even without a worker.
func TestSandboxClockReachesDeadlines(t *testing.T) {
	b := newBilling(t, nil)
	for _, reference := range []string{"one", "two"} {
		b.Post(b.batches(""), bodyOf(reference, "ada", "bob")).Expect(202)
	}
	b.Post("/sandbox/clock", `{"advanceMs":86399999}`).Expect(200)
	if got := b.batchPage(t, b.batches("?state=inProgress")); got.TotalItems != 2 {
		t.Errorf("%d batches in progress a millisecond before the deadline", got.TotalItems)
	}
	b.Post("/sandbox/clock", `{"advanceMs":1}`).Expect(200)
	if got := b.batchPage(t, b.batches("?state=settled")); got.TotalItems != 2 {
		t.Errorf("%d batches settled at the deadline", got.TotalItems)
	}
}

func TestSandboxIsAbsentInProduction(t *testing.T) {
	b := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
	b.invite(t, "r")
	b.Post(b.sandboxSignup("r"), nil).Refused(404, "requests:not-found")
	b.Post("/sandbox/clock", `{"advanceMs":1}`).Refused(404, "requests:not-found")
	b.Get("/sandbox/requests").Refused(404, "requests:not-found")
	b.With("Accept", "text/event-stream").Get("/sandbox/requests").Refused(404, "requests:not-found")
	b.advance(t, time.Second)
	if got := b.state("r"); got != "invited" {
		t.Errorf("the invitation is %s", got)
	}
	staging := newBilling(t, func(cfg *api.Config) { cfg.Sandbox.Clock = false })
	staging.Post("/sandbox/clock", `{"advanceMs":1}`).Refused(404, "requests:not-found")
}
