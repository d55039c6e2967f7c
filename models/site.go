package models

// Site is a place of business of an organisation. Each customer, batch and payment intent belongs
// to exactly one Site.
type Site struct {
	ID             SiteID
	OrganisationID OrganisationID
	Name           string // for operators and customers
	Currency       string // ISO 4217; every amount of the Site is in its minor unit
	CreatedAt      Millis // in service time
}
