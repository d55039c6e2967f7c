package models

import (
	"encoding/json"
	"time"
)

// AuditEntry is an entry of the audit log. Its JSON form is a line of an export.
type AuditEntry struct {
	ID             AuditEntryID    `json:"id"`
	At             Millis          `json:"at"`         // service time
	RecordedAt     time.Time       `json:"recordedAt"` // server time
	ActorKind      ActorKind       `json:"actorKind"`
	Actor          string          `json:"actor"`
	Origin         string          `json:"origin"`
	Act            ActName         `json:"act"`
	SubjectKind    SubjectKind     `json:"subjectKind,omitempty"`
	Subject        string          `json:"subject,omitempty"`
	OrganisationID OrganisationID  `json:"organisationId,omitzero"`
	SiteID         SiteID          `json:"siteId,omitzero"`
	Detail         json.RawMessage `json:"detail"`
	Outcome        ActOutcome      `json:"outcome"`
	Code           string          `json:"code,omitempty"`
	TraceID        TraceID         `json:"traceId"`
}

// AuditFilter selects entries of the audit log. Zero fields select all entries.
type AuditFilter struct {
	From, To       Millis // service time; From is inclusive, To is exclusive
	Actor          string
	Act            ActName
	OrganisationID OrganisationID
	Subject        string
}

// AuditPosition is the position of an entry. The zero position precedes the newest entry.
type AuditPosition = Position[AuditEntryID]
