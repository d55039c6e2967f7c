package models

// Organisation is a partner. It owns Sites and API clients. Organisations never see each other's
// data.
type Organisation struct {
	ID        OrganisationID
	Name      string // for operators
	CreatedAt Millis
}
