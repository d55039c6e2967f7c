package models

import (
	"encoding/json"
	"time"
)

// AuditEntry is an entry of the audit log: one act of an operator or an API client, with its
// outcome. Its JSON form is a line of an export.
type AuditEntry struct {
	ID             AuditEntryID    `json:"id"`
	At             Millis          `json:"at"`                      // service time
	RecordedAt     time.Time       `json:"recordedAt"`              // server time
	ActorKind      ActorKind       `json:"actorKind"`               // operator or client
	Actor          string          `json:"actor"`                   // operator's name or client's id
	Origin         string          `json:"origin"`                  // a peer's address or account@host
	Act            ActName         `json:"act"`                     // what the actor did
	SubjectKind    SubjectKind     `json:"subjectKind,omitempty"`   // "": not known
	Subject        string          `json:"subject,omitempty"`       // what the act changed
	OrganisationID OrganisationID  `json:"organisationId,omitzero"` // zero: none is concerned
	SiteID         SiteID          `json:"siteId,omitzero"`         // zero: none is concerned
	Detail         json.RawMessage `json:"detail"`                  // an object; {} if there is none
	Outcome        ActOutcome      `json:"outcome"`                 // done, refused or failed
	Code           string          `json:"code,omitempty"`          // why it was refused or failed; else ""
	TraceID        TraceID         `json:"traceId"`                 // of the request or command
}

// AuditFilter selects the entries of the audit log that match all its fields. A zero field matches
// every entry.
type AuditFilter struct {
	From, To       Millis // of AuditEntry.At; From is inclusive, To is exclusive
	Actor          string
	Act            ActName
	OrganisationID OrganisationID
	Subject        string
}

// AuditPosition is the position of an entry in the audit log, newest first, by At and ID. The zero
// position precedes the newest entry.
type AuditPosition = Position[AuditEntryID]
