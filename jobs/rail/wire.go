package rail

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"partnerbilling/models"
)

const (
	// maxBody is the maximum size of a body, in bytes, in both directions. A list has maxListBody
	// instead.
	maxBody = 64 << 10
	// maxListBody is the maximum size of the answer to a list request, in bytes.
	maxListBody = 1 << 20
)

// operation is one of the operations of the contract in HTTP.md.
type operation string

const (
	opDebit  operation = "debit"
	opLookup operation = "lookup"
	opCancel operation = "cancel"
	opList   operation = "list"
)

// debitBody is the body of POST /debits.
type debitBody struct {
	Key            string                `json:"key"`
	AgreementID    string                `json:"agreementId"`
	CustomerID     string                `json:"customerId"`
	Amount         models.Amount         `json:"amount"`
	Currency       string                `json:"currency"`
	OrganisationID models.OrganisationID `json:"organisationId"`
	SiteID         models.SiteID         `json:"siteId"`
}

// statusBody is the body of an answer with HTTP status 200 or 202. AgreementID, Amount and Currency
// are either all set or all nil.
type statusBody struct {
	Key         string         `json:"key"`
	Status      string         `json:"status"`
	AgreementID *string        `json:"agreementId,omitzero"`
	Amount      *models.Amount `json:"amount,omitzero"`
	Currency    *string        `json:"currency,omitzero"`
	Reason      Reason         `json:"reason,omitzero"`
}

// held returns the particulars, zero if the body has none. It returns an error if the body has only
// some of them, or if one is invalid.
func (b statusBody) held() (Particulars, error) {
	switch {
	case b.AgreementID == nil && b.Amount == nil && b.Currency == nil:
		return Particulars{}, nil
	case b.AgreementID == nil || b.Amount == nil || b.Currency == nil:
		return Particulars{}, errors.New("the answer has only some of agreementId, amount and currency")
	}
	p := Particulars{*b.AgreementID, *b.Amount, *b.Currency}
	if err := p.validate(); err != nil {
		return Particulars{}, fmt.Errorf("the answer's particulars: %w", err)
	}
	return p, nil
}

// setHeld sets the particulars, unless they are zero.
func (b *statusBody) setHeld(p Particulars) {
	if p != (Particulars{}) {
		b.AgreementID, b.Amount, b.Currency = &p.AgreementID, &p.Amount, &p.Currency
	}
}

// errorBody is the body of an answer with any other HTTP status.
type errorBody struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// The codes of error bodies. A code that is not in errorStatuses says nothing about the key.
const (
	codeInvalidRequest   = "invalidRequest"
	codeInvalidSignature = "invalidSignature"
	codeKeyConflict      = "keyConflict"
	codeRateLimited      = "rateLimited"
	codeBankUnavailable  = "bankUnavailable"
	codeKeyNotFound      = "keyNotFound"
	codeOutcomeUnknown   = "outcomeUnknown"
)

// errorAnswer is an error answer to an operation.
type errorAnswer struct {
	op     operation
	status int
	code   string
}

// errorStatuses maps error answers to statuses. Any other error answer is Unknown.
var errorStatuses = map[errorAnswer]Status{
	{opDebit, http.StatusBadRequest, codeInvalidRequest}:          Invalid,
	{opDebit, http.StatusUnauthorized, codeInvalidSignature}:      Unavailable,
	{opDebit, http.StatusConflict, codeKeyConflict}:               Conflict,
	{opDebit, http.StatusTooManyRequests, codeRateLimited}:        Unavailable,
	{opDebit, http.StatusServiceUnavailable, codeBankUnavailable}: Unavailable,
	{opLookup, http.StatusNotFound, codeKeyNotFound}:              NotFound,
}

// pending is the status of a debit that the rail has accepted and not decided yet.
const pending = "pending"

// readAnswer reads the answer to a look-up or cancellation of a key.
func readAnswer(op operation, key string, status int, body []byte) Result {
	r := readAny(op, key, status, body)
	if (r.Status == Succeeded || r.Status == Refused) && r.Held == (Particulars{}) {
		return Result{Status: Unknown, Detail: "the answer lacks agreementId, amount and currency"}
	}
	return r
}

// readDebitAnswer reads the answer to a debit. An answer with particulars other than those of d is
// a Conflict.
func readDebitAnswer(d Debit, status int, body []byte) Result {
	r := readAny(opDebit, d.Key, status, body)
	if r.Held.ConflictsWith(d) {
		return Result{Status: Conflict, Detail: "the answer is about a debit with other particulars"}
	}
	r.Held = Particulars{}
	return r
}

// readAny reads the answer to any operation on a key. Held holds the particulars in the answer, if
// it has any.
func readAny(op operation, key string, status int, body []byte) Result {
	if status == http.StatusOK || status == http.StatusAccepted {
		return readStatus(key, status, body)
	}
	var e errorBody
	if err := json.Unmarshal(body, &e); err != nil {
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d without a readable body", status)}
	}
	return Result{
		Status: errorStatuses[errorAnswer{op, status, e.Error.Code}], // Unknown for any other
		Detail: fmt.Sprintf("HTTP %d, code %.40q", status, e.Error.Code),
	}
}

// readStatus reads an answer with HTTP status 200 or 202. A final status needs a 200.
func readStatus(key string, status int, body []byte) Result {
	var b statusBody
	if err := json.Unmarshal(body, &b); err != nil {
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d without a readable body", status)}
	}
	if b.Key != key {
		return Result{Status: Unknown, Detail: "the answer is about another key"}
	}
	held, err := b.held()
	if err != nil {
		return Result{Status: Unknown, Detail: err.Error()}
	}
	switch {
	case b.Status == pending:
		return Result{Status: Unknown, Held: held, Detail: "not decided yet"}
	case status == http.StatusOK && b.Status == Succeeded.String():
		return Result{Status: Succeeded, Held: held}
	case status == http.StatusOK && b.Status == Refused.String():
		return Result{Status: Refused, Reason: ParseReason(string(b.Reason)), Held: held}
	case status == http.StatusOK && b.Status == Cancelled.String():
		return Result{Status: Cancelled, Held: held}
	default:
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d, status %.40q", status, b.Status)}
	}
}

// reply is an answer to send: its HTTP status, and its body in JSON.
type reply struct {
	status int
	body   []byte
}

// replyTo returns the answer that carries a result without its detail. readAnswer and
// readDebitAnswer are its inverse.
func replyTo(key string, r Result) reply {
	switch r.Status {
	case Succeeded, Refused, Cancelled:
		return statusReply(key, r.Status.String(), r)
	case Conflict:
		return errorReply(http.StatusConflict, codeKeyConflict, "another debit holds the key")
	case Invalid:
		return errorReply(http.StatusBadRequest, codeInvalidRequest, "the debit cannot be carried out as it stands")
	case Unavailable:
		return errorReply(http.StatusServiceUnavailable, codeBankUnavailable,
			"nothing was debited; retry later under the same key")
	case NotFound:
		return errorReply(http.StatusNotFound, codeKeyNotFound, "nothing has arrived under the key")
	default:
		if r.Held != (Particulars{}) {
			return statusReply(key, pending, r)
		}
		return errorReply(http.StatusGatewayTimeout, codeOutcomeUnknown, "the outcome is not known; look the key up")
	}
}

func statusReply(key, status string, r Result) reply {
	b := statusBody{Key: key, Status: status, Reason: r.Reason}
	b.setHeld(r.Held)
	return jsonReply(http.StatusOK, b)
}

func errorReply(status int, code, message string) reply {
	var e errorBody
	e.Error.Code, e.Error.Message = code, message
	return jsonReply(status, e)
}

func jsonReply(status int, v any) reply {
	body, err := json.Marshal(v)
	if err != nil { // only for a key that is not UTF-8, which validation excludes
		return reply{http.StatusInternalServerError, nil}
	}
	return reply{status, body}
}

func (r reply) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body)
}
