package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
)

// signup is the data of a sign-up.
type signup struct {
	LinkID, OrganisationName, SiteName, State string
	InvitedAt, ExpiresAt, LinkedAt            models.Millis
}

func TestSignupAnswers(t *testing.T) {
	b := newBilling(t, nil)
	path := "/customer-app/signups/" + b.token(t, "r")
	golden(t, "signup-invited", b.app.Get(path).Expect(200))
	b.app.Send(http.MethodHead, path, nil).Expect(200)
	if got := b.state("r"); got != "invited" {
		t.Fatalf("looking made it %s", got)
	}
	golden(t, "signup-missing-field", b.app.Post(path+"/completion", `{}`).Expect(400))
	golden(t, "signup-invalid-field", b.app.Post(path+"/completion", `{"customerId":7,"agreementId":""}`).Expect(400))
	b.advance(t, time.Second)
	alice := `{"customerId":"alice","agreementId":"agreement-1"}`
	golden(t, "signup-linked", b.app.Post(path+"/completion", alice).Expect(200))
	b.advance(t, time.Second)
	golden(t, "signup-linked", b.app.Post(path+"/completion", alice).Expect(200)) // the same answer
	golden(t, "signup-linked", b.app.Get(path).Expect(200))
	golden(t, "signup-taken", b.app.Post(path+"/completion", `{"customerId":"bob","agreementId":"agreement-1"}`).
		Expect(409))
	golden(t, "signup-linked", b.app.Post(path+"/completion", `{"customerId":"alice","agreementId":"agreement-2"}`).
		Expect(200))

	var s signup
	b.app.Get(path).Data(&s)
	golden(t, "link-revocation", b.app.Post("/customer-app/links/"+s.LinkID+"/revocation", nil).Expect(200))
	b.advance(t, time.Second)
	// the same again
	golden(t, "link-revocation", b.app.Post("/customer-app/links/"+s.LinkID+"/revocation", nil).Expect(200))
	golden(t, "signup-revoked", b.app.Get(path).Expect(200))
	golden(t, "signup-revoked-completion", b.app.Post(path+"/completion", alice).Expect(410))

	path = "/customer-app/signups/" + b.token(t, "r")
	b.app.Get(path).Data(&s)
	b.advance(t, week)
	golden(t, "signup-expired", b.app.Get(path).Expect(200))
	golden(t, "signup-expired-completion", b.app.Post(path+"/completion", alice).Expect(410))
	golden(t, "link-revocation-expired", b.app.Post("/customer-app/links/"+s.LinkID+"/revocation", nil).Expect(409))
	golden(t, "link-revocation-not-found",
		b.app.Post("/customer-app/links/lnk_01932c07-0000-7000-8000-000000000009/revocation", nil).Expect(404))
	for _, id := range []string{"x", "bat_01932c07-0000-7000-8000-000000000009", strings.ToUpper(s.LinkID)} {
		b.app.Post("/customer-app/links/"+id+"/revocation", nil).Refused(404, "customers:link-not-found linkId")
	}
}

func TestSignupTokensOfOthers(t *testing.T) {
	b, another := newBilling(t, nil), newBilling(t, nil)
	token := b.token(t, "r")
	foreign := another.token(t, "r")
	for _, token := range []string{
		"x", foreign, token[:47], token + "A", token[:22] + foreign[22:], "%ff", "%zz", strings.Repeat("A", 48),
		token + "%0a",
	} {
		golden(t, "signup-not-found", b.app.Get("/customer-app/signups/"+token).Expect(404))
		b.app.Post("/customer-app/signups/"+token+"/completion", `{"customerId":"c","agreementId":"a"}`).Expect(404)
	}
}

func TestSignupsAreForTheCustomerApp(t *testing.T) {
	b := newBilling(t, nil)
	path := "/customer-app/signups/" + b.token(t, "r")
	b.Get(path).Refused(403, "auth:insufficient-scope")
	b.Post(path+"/completion", `{"customerId":"c","agreementId":"a"}`).Refused(403, "auth:insufficient-scope")
	b.app.Get(b.customer("r", "")).Refused(403, "auth:insufficient-scope")
}

// Data that the customer app sends never reaches a partner or a page.
func TestPartnersNeverSeeTheCustomer(t *testing.T) {
	b := newBilling(t, nil)
	page := b.invite(t, "r")
	party := map[string]string{"customerId": "secret-customer", "agreementId": "secret-agreement"}
	answer := b.app.Post("/customer-app/signups/"+page[len("/signup/"):]+"/completion", party).Expect(200)
	bodies := []string{string(answer.Body)}
	for _, a := range []string{page, b.customer("r", ""), b.customers("")} {
		bodies = append(bodies, string(b.Get(a).Expect(200).Body))
	}
	bodies = append(bodies, string(b.Post(b.customer("r", "/revocation"), nil).Expect(200).Body))
	if all := fmt.Sprint(bodies); strings.Contains(all, "secret") {
		t.Error(all)
	}
}

// Of many concurrent completions of one link, exactly one succeeds and the others get 409.
func TestConcurrentSignups(t *testing.T) {
	b := newBilling(t, nil)
	path := "/customer-app/signups/" + b.token(t, "r") + "/completion"
	var all sync.WaitGroup
	var mu sync.Mutex
	byStatus := map[int]map[int]bool{200: {}, 409: {}}
	for i := range 24 {
		all.Go(func() {
			customer := i % 4
			body := fmt.Sprintf(`{"customerId":"c%d","agreementId":"a%[1]d"}`, customer)
			answer, err := b.app.Try(t.Context(), "POST", path, body)
			if err != nil || byStatus[answer.Status] == nil {
				t.Errorf("%v %v", answer, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			byStatus[answer.Status][customer] = true
		})
	}
	all.Wait()
	if len(byStatus[200]) != 1 || len(byStatus[409]) != 3 {
		t.Errorf("customers by status: %v", byStatus)
	}
}
