package modelstest

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"partnerbilling/models"
)

// Site makes an organisation with one Site.
func Site(t testing.TB, store *models.Store) models.Site {
	t.Helper()
	organisation, err := store.CreateOrganisation(t.Context(), "Organisation of "+t.Name())
	if err != nil {
		t.Fatalf("modelstest: organisation: %v", err)
	}
	site, err := store.CreateSite(t.Context(), organisation.ID, "Site of "+t.Name())
	if err != nil {
		t.Fatalf("modelstest: Site: %v", err)
	}
	return site
}

// Invite invites a customer.
func Invite(t testing.TB, store *models.Store, site models.SiteID, reference string) models.Link {
	t.Helper()
	link, _, err := store.CreateInvitation(t.Context(), models.NewInvitation{SiteID: site, CustomerReference: reference}, nil)
	if err != nil {
		t.Fatalf("modelstest: invite %q: %v", reference, err)
	}
	return link
}

// Customer invites a customer and signs it up, with an account on the sandbox rail that behaves as told. The agreement is
// named after the link.
func Customer(
	t testing.TB, store *models.Store, site models.SiteID, reference string, behaviour models.Behaviour,
) models.Link {
	t.Helper()
	link := Invite(t, store, site, reference)
	party := models.Party{CustomerID: "customer of " + link.ID.String(), AgreementID: Agreement(link)}
	if err := store.OpenSandboxAccount(t.Context(), party.AgreementID, behaviour); err != nil {
		t.Fatalf("modelstest: account of %q: %v", reference, err)
	}
	if _, err := store.CompleteLink(t.Context(), link.ID, party); err != nil {
		t.Fatalf("modelstest: sign up %q: %v", reference, err)
	}
	return link
}

// Agreement is the agreement under which Customer signs a link up.
func Agreement(link models.Link) string { return "agreement of " + link.ID.String() }

// Batch is a submission with one row for each customer reference, of 1 cent more each. Its fingerprint is that of its rows.
func Batch(site models.Site, reference string, customers ...string) models.NewBatch {
	batch := models.NewBatch{
		SiteID: site.ID, OrganisationID: site.OrganisationID, Reference: reference, TraceID: models.NewTraceID(),
	}
	for i, customer := range customers {
		batch.Rows = append(batch.Rows, models.NewRow{
			CustomerReference: customer, RowReference: fmt.Sprintf("row-%d", i), Amount: models.Amount(100 + i),
		})
	}
	batch.Fingerprint = sha256.Sum256(fmt.Append(nil, batch.Reference, batch.Rows))
	return batch
}

// Submit submits a batch that must be a new one.
func Submit(t testing.TB, store *models.Store, batch models.NewBatch) models.Submission {
	t.Helper()
	done, err := store.SubmitBatch(t.Context(), batch)
	if err != nil || done.Replayed || done.Conflict != nil {
		t.Fatalf("modelstest: submit %q: %+v, %v", batch.Reference, done, err)
	}
	return done
}

// Audit fails the test for every promise about money and state that is broken in the books.
func Audit(t testing.TB, store *models.Store) {
	t.Helper()
	audit(t, store, false)
}

// AuditRail is Audit, and holds the books against the sandbox rail's own list.
func AuditRail(t testing.TB, store *models.Store) {
	t.Helper()
	audit(t, store, true)
}

func audit(t testing.TB, store *models.Store, withSandbox bool) {
	t.Helper()
	found, err := store.Audit(t.Context(), withSandbox)
	if err != nil {
		t.Fatalf("modelstest: audit: %v", err)
	}
	for _, v := range found {
		t.Errorf("audit: not %s: %s: %s", v.Check, v.Subject, v.Detail)
	}
}
