package models

import (
	"context"
	"errors"
	"fmt"
)

// ActName names a kind of [Act], as the audit log shows it.
type ActName string

// The acts of operators. They come from svc admin, svc migrate and the operators' pages.
const (
	ActAddOrganisation     ActName = "addOrganisation"
	ActColourOrganisation  ActName = "colourOrganisation"
	ActAddSite             ActName = "addSite"
	ActAddClient           ActName = "addClient"
	ActDisableClient       ActName = "disableClient"
	ActEnableClient        ActName = "enableClient"
	ActSetClientScopes     ActName = "setClientScopes"
	ActSetClientAddresses  ActName = "setClientAddresses"
	ActAddClientSecret     ActName = "addClientSecret"
	ActRemoveClientSecret  ActName = "removeClientSecret"
	ActSetClientKeys       ActName = "setClientKeys"
	ActRemoveClientKeys    ActName = "removeClientKeys"
	ActRotateKey           ActName = "rotateKey"
	ActRetireKey           ActName = "retireKey"
	ActReseal              ActName = "reseal" // encrypts all stored secrets under the first master key
	ActCloseAlert          ActName = "closeAlert"
	ActAcknowledgeAlert    ActName = "acknowledgeAlert"
	ActPauseDebits         ActName = "pauseDebits"
	ActResumeDebits        ActName = "resumeDebits"
	ActPauseQueue          ActName = "pauseQueue"
	ActResumeQueue         ActName = "resumeQueue"
	ActRedeliverForPartner ActName = "redeliverForPartner"
	ActUnparkEndpoint      ActName = "unparkEndpoint"   // enables an endpoint, resets its breaker
	ActLookUpDebit         ActName = "lookUpDebit"      // asks the rail about a rail key
	ActDecideRow           ActName = "decideRow"        // sets the true outcome of an unconfirmed row
	ActDecidePayment       ActName = "decidePayment"    // ends a pending payment
	ActDecideRestored      ActName = "decideRestored"   // holds, resumes or cancels restored work
	ActReplaceRail         ActName = "replaceRail"      // records another rail as the database's
	ActRecountCustomers    ActName = "recountCustomers" // rebuilds the stored totals of customer links
	ActEraseCustomer       ActName = "eraseCustomer"
	ActMigrate             ActName = "migrate"
)

// The acts of API clients.
const (
	ActPutWebhookEndpoint    ActName = "putWebhookEndpoint"
	ActDeleteWebhookEndpoint ActName = "deleteWebhookEndpoint"
	ActTestWebhookEndpoint   ActName = "testWebhookEndpoint"
	ActRotateWebhookSecret   ActName = "rotateWebhookSecret"
	ActRedeliverWebhook      ActName = "redeliverWebhook"
	ActRedeliverWebhooks     ActName = "redeliverWebhooks"
	ActCancelBatch           ActName = "cancelBatch"
	ActRetryBatch            ActName = "retryBatch"
	ActRevokeCustomer        ActName = "revokeCustomer"
	ActCancelPaymentIntent   ActName = "cancelPaymentIntent"
)

// OperatorActs are the acts that only operators perform.
var OperatorActs = []ActName{
	ActAddOrganisation, ActColourOrganisation, ActAddSite, ActAddClient, ActDisableClient, ActEnableClient,
	ActSetClientScopes, ActSetClientAddresses, ActAddClientSecret, ActRemoveClientSecret, ActSetClientKeys,
	ActRemoveClientKeys, ActRotateKey, ActRetireKey, ActReseal, ActCloseAlert, ActDecideRow, ActDecidePayment,
	ActDecideRestored,
	ActReplaceRail, ActRecountCustomers, ActEraseCustomer, ActMigrate, ActAcknowledgeAlert, ActPauseDebits,
	ActResumeDebits, ActPauseQueue, ActResumeQueue, ActRedeliverForPartner, ActUnparkEndpoint, ActLookUpDebit,
}

// ClientActs are the acts that only clients perform.
var ClientActs = []ActName{
	ActPutWebhookEndpoint, ActDeleteWebhookEndpoint, ActTestWebhookEndpoint, ActRotateWebhookSecret,
	ActRedeliverWebhook, ActRedeliverWebhooks, ActCancelBatch, ActRetryBatch, ActRevokeCustomer,
	ActCancelPaymentIntent,
}

// ActorKind says what kind of actor performed an act.
type ActorKind string

// The kinds of actors.
const (
	ActorOperator ActorKind = "operator"
	ActorClient   ActorKind = "client"
)

// Actor is the operator or the client that performs an act, with the origin of the act.
type Actor struct {
	Kind           ActorKind
	Name           string         // the operator's name, or the client's id
	OrganisationID OrganisationID // of a client; zero for an operator and for the customer app
	Origin         string         // the peer's address, or account@host of a command line
}

// SubjectKind says what an act changes.
type SubjectKind string

// The kinds of subjects. Each comment names what identifies the subject.
const (
	SubjectOrganisation    SubjectKind = "organisation"    // its id
	SubjectSite            SubjectKind = "site"            // its id
	SubjectClient          SubjectKind = "client"          // its id
	SubjectKey             SubjectKind = "key"             // its id
	SubjectMasterKey       SubjectKind = "masterKey"       // empty: there is one
	SubjectAlert           SubjectKind = "alert"           // its kind and subject, or the kind alone
	SubjectBatch           SubjectKind = "batch"           // its batchReference
	SubjectBatchRow        SubjectKind = "batchRow"        // its rail key
	SubjectPaymentIntent   SubjectKind = "paymentIntent"   // its id
	SubjectCustomerLink    SubjectKind = "customerLink"    // its id, since a reference may be personal
	SubjectWebhookEndpoint SubjectKind = "webhookEndpoint" // "default" or the siteId
	SubjectWebhookSecret   SubjectKind = "webhookSecret"   // its id
	SubjectWebhookEvent    SubjectKind = "webhookEvent"    // its idempotencyKey; empty for a filter
	SubjectRail            SubjectKind = "rail"            // adapter and SVC_RAIL_ID
	SubjectDatabase        SubjectKind = "database"        // empty: there is one
	SubjectQueue           SubjectKind = "queue"           // its name
	SubjectRailKey         SubjectKind = "railKey"         // the rail key
)

// Act is one change by an operator or an API client, for the audit log. A context carries it to the
// Store. The database transaction that makes the change also records it. An Act is not safe for
// concurrent use.
type Act struct {
	Name  ActName
	Actor Actor
	// Reason is an operator's reason, as CheckReason accepts it. Pauses, resumptions and bulk
	// redeliveries require one.
	Reason string

	subjectKind  SubjectKind
	subject      string
	organisation OrganisationID
	site         SiteID
	detail       map[string]any
	recorded     bool // a transaction has recorded the act, or found nothing to change
}

type actKey struct{}

// WithAct returns a context that carries the act. The Store's first change under that context
// records the act in the audit log.
func WithAct(ctx context.Context, act *Act) context.Context {
	return context.WithValue(ctx, actKey{}, act)
}

// actFrom returns the context's act. If the context carries none, actFrom returns an act that is
// never recorded, so that callers need no check.
func actFrom(ctx context.Context) *Act {
	if act, ok := ctx.Value(actKey{}).(*Act); ok {
		return act
	}
	return &Act{recorded: true}
}

// about sets the subject: what the act changes. The Store sets it as early as possible, so that
// even the entry of a refused act names the subject.
func (a *Act) about(kind SubjectKind, subject string) *Act {
	a.subjectKind, a.subject = kind, subject
	return a
}

// in sets the organisation and the Site that the act concerns. Zero means none, except that a zero
// organisation becomes the acting client's or, for an operator, the Site's.
func (a *Act) in(organisation OrganisationID, site SiteID) *Act {
	a.organisation, a.site = organisation, site
	return a
}

// with adds a detail to the act's log entry. The detail must contain no secret, and nothing that
// identifies a customer.
func (a *Act) with(name string, value any) *Act {
	if a.detail == nil {
		a.detail = map[string]any{}
	}
	a.detail[name] = value
	return a
}

// ErrReason says that an act needs a reason, or that its reason is not printable text.
var ErrReason = fmt.Errorf("models: the act needs a reason of 1 to %d characters of printable text", MaxReferenceLength)

// ErrRole says that the operator's role does not allow acts.
var ErrRole = errors.New("models: the operator's role does not allow acts")

// CheckReason returns ErrReason unless the text can be the reason of an act.
func CheckReason(text string) error {
	if ValidateLabel(text) != nil {
		return ErrReason
	}
	return nil
}

// needsReason returns ErrReason unless the act has a valid reason. A call without an act needs no
// reason.
func (a *Act) needsReason() error {
	if a.Name == "" {
		return nil
	}
	return CheckReason(a.Reason)
}

// ActOutcome says how an act ended.
type ActOutcome string

// The outcomes of acts.
const (
	ActDone    ActOutcome = "done"
	ActRefused ActOutcome = "refused" // the service's rules forbid the act; nothing was changed
	ActFailed  ActOutcome = "failed"  // a fault ended the act; whether it took effect may be unknown
)

// refusals are the errors of acts that the service's rules forbid, with their codes in the audit
// log.
var refusals = []struct {
	err  error
	code string
}{
	{ErrNotFound, "notFound"},
	{ErrInvalidID, "invalidId"},
	{ErrName, "invalidName"},
	{ErrScopes, "scopesNotAllowed"},
	{ErrAddresses, "invalidAddresses"},
	{ErrTooManySecrets, "tooManySecrets"},
	{ErrKeyRotating, "keyRotating"},
	{ErrNoDecisionNeeded, "noDecisionNeeded"},
	{ErrNothingHeld, "nothingHeld"},
	{ErrInDoubt, "inDoubt"},
	{ErrCustomerInUse, "customerInUse"},
	{ErrReason, "reasonRequired"},
	{ErrRole, "roleNotAllowed"},
	{ErrPaused, "alreadyPaused"},
	{ErrNotPaused, "notPaused"},
	{ErrNotPausable, "notPausable"},
	{ErrNotBlocked, "notBlocked"},
	{ErrNoWebhookEndpoint, "noWebhookEndpoint"},
}

// outcomeOf returns the outcome and the code of an act that ended with an error.
func outcomeOf(err error) (ActOutcome, string) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return ActRefused, r.code
		}
	}
	switch {
	case err == nil:
		return ActDone, ""
	case errors.Is(err, ErrUnavailable):
		return ActFailed, "unavailable"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ActFailed, "interrupted"
	default:
		return ActFailed, "internal"
	}
}
