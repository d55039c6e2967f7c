package models

import (
	"context"
	"errors"
)

// ActName names a kind of act in the audit log.
type ActName string

// The acts of operators, by svc admin, svc migrate and the operators' pages.
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
	ActReseal              ActName = "reseal"
	ActCloseAlert          ActName = "closeAlert"
	ActAcknowledgeAlert    ActName = "acknowledgeAlert"
	ActPauseDebits         ActName = "pauseDebits"
	ActResumeDebits        ActName = "resumeDebits"
	ActPauseQueue          ActName = "pauseQueue"
	ActResumeQueue         ActName = "resumeQueue"
	ActRedeliverForPartner ActName = "redeliverForPartner"
	ActUnparkEndpoint      ActName = "unparkEndpoint"
	ActLookUpDebit         ActName = "lookUpDebit"
	ActDecideRow           ActName = "decideRow"
	ActDecidePayment       ActName = "decidePayment"
	ActDecideRestored      ActName = "decideRestored"
	ActReplaceRail         ActName = "replaceRail"
	ActRecountCustomers    ActName = "recountCustomers"
	ActEraseCustomer       ActName = "eraseCustomer"
	ActMigrate             ActName = "migrate"
)

// The acts of clients, by the API.
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
	ActSetClientScopes, ActSetClientAddresses, ActAddClientSecret, ActRemoveClientSecret, ActSetClientKeys, ActRemoveClientKeys,
	ActRotateKey, ActRetireKey, ActReseal, ActCloseAlert, ActDecideRow, ActDecidePayment, ActDecideRestored,
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
	SubjectMasterKey       SubjectKind = "masterKey"       // nothing
	SubjectAlert           SubjectKind = "alert"           // kind and subject; the kind alone for CloseAlertsOf
	SubjectBatch           SubjectKind = "batch"           // its batchReference
	SubjectBatchRow        SubjectKind = "batchRow"        // its rail key
	SubjectPaymentIntent   SubjectKind = "paymentIntent"   // its id
	SubjectCustomerLink    SubjectKind = "customerLink"    // its id, since a reference may be personal
	SubjectWebhookEndpoint SubjectKind = "webhookEndpoint" // "default" or the siteId
	SubjectWebhookSecret   SubjectKind = "webhookSecret"   // its id
	SubjectWebhookEvent    SubjectKind = "webhookEvent"    // its idempotencyKey; empty for a filter
	SubjectRail            SubjectKind = "rail"            // adapter and SVC_RAIL_ID
	SubjectDatabase        SubjectKind = "database"        // nothing
	SubjectQueue           SubjectKind = "queue"           // its name
	SubjectRailKey         SubjectKind = "railKey"         // itself
)

// Act is an act in progress. A context carries it to the Store, whose transaction records it. It is
// not safe for concurrent use.
type Act struct {
	Name   ActName
	Actor  Actor
	Reason string // why, in the operator's words; dangerous acts require it. See CheckReason

	subjectKind  SubjectKind
	subject      string
	organisation OrganisationID
	site         SiteID
	detail       map[string]any
	recorded     bool // a transaction has recorded the act, or found nothing to change
}

type actKey struct{}

// WithAct returns a context whose next transaction records the act.
func WithAct(ctx context.Context, act *Act) context.Context {
	return context.WithValue(ctx, actKey{}, act)
}

// actFrom returns the context's act. Without one it returns an act that is never recorded, so that
// callers need not distinguish.
func actFrom(ctx context.Context) *Act {
	if act, ok := ctx.Value(actKey{}).(*Act); ok {
		return act
	}
	return &Act{recorded: true}
}

// about sets what the act changes. The Store calls it as soon as it knows the subject, so that the
// entry of a refused act names it, too.
func (a *Act) about(kind SubjectKind, subject string) *Act {
	a.subjectKind, a.subject = kind, subject
	return a
}

// in sets the organisation and the Site that the act concerns. A zero organisation means the acting
// client's, or else the Site's.
func (a *Act) in(organisation OrganisationID, site SiteID) *Act {
	a.organisation, a.site = organisation, site
	return a
}

// with adds a detail: no secret, and nothing that identifies a customer.
func (a *Act) with(name string, value any) *Act {
	if a.detail == nil {
		a.detail = map[string]any{}
	}
	a.detail[name] = value
	return a
}

// ErrReason says that an act needs a reason, or that its reason is not printable text.
var ErrReason = errors.New("models: the act needs a reason of 1 to 128 characters of printable text")

// ErrRole says that the operator's role does not allow acts.
var ErrRole = errors.New("models: the operator's role does not allow acts")

// CheckReason returns ErrReason unless the text can be the reason of an act.
func CheckReason(text string) error {
	if ValidateLabel(text) != nil {
		return ErrReason
	}
	return nil
}

// needsReason returns ErrReason unless the act has a valid reason. Calls without an act need none.
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
	{ErrNotParked, "notParked"},
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
