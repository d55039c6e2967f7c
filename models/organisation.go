package models

// Organisation is a partner. It owns Sites and API clients; nothing of one is ever visible to another.
type Organisation struct {
	ID        OrganisationID
	Name      string // for operators
	CreatedAt Millis
}
