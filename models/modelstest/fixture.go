package modelstest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"partnerbilling/models"
)

// Site creates an organisation with one Site.
func Site(t testing.TB, store *models.Store) models.Site {
	t.Helper()
	organisation, err := store.CreateOrganisation(t.Context(), "Harbour Power")
	if err != nil {
		t.Fatalf("modelstest: organisation: %v", err)
	}
	site, err := store.CreateSite(t.Context(), organisation.ID, "North Quay")
	if err != nil {
		t.Fatalf("modelstest: Site: %v", err)
	}
	return site
}

// Invite invites a customer to a Site and returns the customer link.
func Invite(t testing.TB, store *models.Store, site models.SiteID, reference string) models.CustomerLink {
	t.Helper()
	link, _, err := store.CreateInvitation(t.Context(),
		models.NewInvitation{SiteID: site, CustomerReference: reference},
		nil)
	if err != nil {
		t.Fatalf("modelstest: invite %q: %v", reference, err)
	}
	return link
}

// Customer invites a customer, opens an account with the behaviour on the sandbox rail, and
// completes the sign-up. It returns the link as it was before the sign-up. See Agreement.
func Customer(
	t testing.TB, store *models.Store, site models.SiteID, reference string, behaviour models.Behaviour,
) models.CustomerLink {
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

// Agreement returns the agreement under which Customer signs up a link.
func Agreement(link models.CustomerLink) string { return "agreement of " + link.ID.String() }

// Batch returns a batch to submit, with one row for each customer reference. The amounts are 100,
// 101, … minor units. The fingerprint derives from the batch reference and the rows.
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

// Submit submits a batch, and fails the test unless the batch is new.
func Submit(t testing.TB, store *models.Store, batch models.NewBatch) models.Submission {
	t.Helper()
	done, err := store.SubmitBatch(t.Context(), batch)
	if err != nil || done.Replayed || done.Conflict != nil {
		t.Fatalf("modelstest: submit %q: %+v, %v", batch.Reference, done, err)
	}
	return done
}

// Audit fails the test for every violated invariant of money and state; see models.Store.Audit.
func Audit(t testing.TB, store *models.Store) {
	t.Helper()
	audit(t, store, false)
}

// AuditRail is Audit, and also compares the ledger with the sandbox rail's own records.
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

// RefuseAuditEntries makes the database refuse every new entry of the audit log until the test
// calls accept.
func RefuseAuditEntries(t testing.TB, store *models.Store) (accept func()) {
	t.Helper()
	alter := func(change string) {
		t.Helper()
		if _, err := store.DB().ExecContext(t.Context(), "ALTER TABLE audit_log "+change); err != nil {
			t.Fatalf("modelstest: refuse audit entries: %v", err)
		}
	}
	alter("ADD CONSTRAINT refused CHECK (false) NOT VALID")
	return func() { t.Helper(); alter("DROP CONSTRAINT refused") }
}

// State returns a digest of the rows of each table but the audit log, by the table's name. The
// digests leave out the leases of batch rows and payment intents, which end by themselves, and
// in_doubt, which claims set.
func State(t testing.TB, store *models.Store) map[string]string {
	t.Helper()
	var tables []string
	err := store.DB().NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'audit_log'`).Scan(t.Context(), &tables)
	state := make(map[string]string, len(tables))
	for _, table := range tables {
		var digest string
		err = errors.Join(err, store.DB().NewRaw(`
SELECT coalesce(md5(string_agg(row, E'\n' ORDER BY row)), '')
FROM (SELECT (to_jsonb(t) - '{lease_token,lease_until,in_doubt}'::text[])::text AS row FROM ? t) AS rows`,
			bun.Ident(table)).Scan(t.Context(), &digest))
		state[table] = digest
	}
	if err != nil {
		t.Fatalf("modelstest: state: %v", err)
	}
	return state
}
