package models

// HitKind is the kind of a search hit.
type HitKind string

// The kinds of hits. Each comment names what Hit.ID holds.
const (
	HitOrganisation  HitKind = "organisation"  // its id
	HitSite          HitKind = "site"          // its id
	HitClient        HitKind = "client"        // its id
	HitBatch         HitKind = "batch"         // its batchReference
	HitPaymentIntent HitKind = "paymentIntent" // its id
	HitCustomer      HitKind = "customer"      // its customerReference
	HitWebhookEvent  HitKind = "webhookEvent"  // its idempotencyKey
)

// Hit is one result of a search.
type Hit struct {
	Kind           HitKind
	ID             string // depends on Kind
	OrganisationID OrganisationID
	SiteID         SiteID // zero: none
	Detail         string // for operators: a name, a state, or the row or payment of a rail key
	At             Millis // service time of the creation; 0 for a hit by rail key
}
