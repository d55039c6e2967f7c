package rail

import (
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"partnerbilling/models"
)

// maxBody is the most bytes that a body of the contract has, either way.
const maxBody = 64 << 10

// operation is one of the contract's three requests.
type operation string

const (
	opDebit  operation = "debit"
	opLookup operation = "lookup"
	opCancel operation = "cancel"
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

// statusBody is the body of a 200 or 202.
type statusBody struct {
	Key    string `json:"key"`
	Status string `json:"status"`
	Reason Reason `json:"reason,omitzero"`
}

// errorBody is the body of every other status.
type errorBody struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// The codes of error bodies. Those that the table of refusals lacks say nothing about the key.
const (
	codeInvalidRequest   = "invalidRequest"
	codeInvalidSignature = "invalidSignature"
	codeKeyReused        = "keyReused"
	codeRateLimited      = "rateLimited"
	codeBankUnavailable  = "bankUnavailable"
	codeKeyNotFound      = "keyNotFound"
	codeOutcomeUnknown   = "outcomeUnknown"
)

type refusal struct {
	op     operation
	status int
	code   string
}

// refusals are the answers beyond 200 that mean something. Whatever is not here is Unknown.
var refusals = map[refusal]Result{
	{opDebit, http.StatusBadRequest, codeInvalidRequest}:          {Status: Refused, Reason: Declined},
	{opDebit, http.StatusUnauthorized, codeInvalidSignature}:      {Status: Unavailable},
	{opDebit, http.StatusConflict, codeKeyReused}:                 {Status: Refused, Reason: KeyReused},
	{opDebit, http.StatusTooManyRequests, codeRateLimited}:        {Status: Unavailable},
	{opDebit, http.StatusServiceUnavailable, codeBankUnavailable}: {Status: Unavailable},
	{opLookup, http.StatusNotFound, codeKeyNotFound}:              {Status: NotFound},
}

// readAnswer is what an answer to a request about key means.
func readAnswer(op operation, key string, status int, body []byte) Result {
	if status == http.StatusOK || status == http.StatusAccepted {
		return readStatus(key, status, body)
	}
	var e errorBody
	if err := json.Unmarshal(body, &e); err != nil {
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d without a readable body", status)}
	}
	r, known := refusals[refusal{op, status, e.Error.Code}]
	if !known {
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d, code %.40q", status, e.Error.Code)}
	}
	if !r.Status.Final() || r.Reason == Declined {
		r.Detail = fmt.Sprintf("HTTP %d, code %s", status, e.Error.Code)
	}
	return r
}

func readStatus(key string, status int, body []byte) Result {
	var b statusBody
	switch err := json.Unmarshal(body, &b); {
	case err != nil:
		return Result{Status: Unknown, Detail: fmt.Sprintf("HTTP %d without a readable body", status)}
	case b.Key != key:
		return Result{Status: Unknown, Detail: "the answer is about another key"}
	case status == http.StatusAccepted || b.Status == "pending":
		return Result{Status: Unknown, Detail: "not decided yet"}
	}
	switch b.Status {
	case Succeeded.String():
		return Result{Status: Succeeded}
	case Refused.String():
		return Result{Status: Refused, Reason: ParseReason(string(b.Reason))}
	case Cancelled.String():
		return Result{Status: Cancelled}
	default:
		return Result{Status: Unknown, Detail: fmt.Sprintf("status %.40q", b.Status)}
	}
}

// reply is an answer of the contract, ready to be written.
type reply struct {
	status int
	body   []byte
}

// replyTo is how the contract says a rail's result; readAnswer is its inverse.
func replyTo(key string, r Result) reply {
	switch r.Status {
	case Succeeded, Cancelled:
		return jsonReply(http.StatusOK, statusBody{Key: key, Status: r.Status.String()})
	case Refused:
		if r.Reason == KeyReused {
			return errorReply(http.StatusConflict, codeKeyReused, "the key belongs to a debit with other values")
		}
		return jsonReply(http.StatusOK, statusBody{Key: key, Status: r.Status.String(), Reason: r.Reason})
	case Unavailable:
		return errorReply(http.StatusServiceUnavailable, codeBankUnavailable, "nothing was debited; come again")
	case NotFound:
		return errorReply(http.StatusNotFound, codeKeyNotFound, "nothing has arrived under the key")
	default:
		return errorReply(http.StatusGatewayTimeout, codeOutcomeUnknown, "the outcome is not known; look the key up")
	}
}

func errorReply(status int, code, message string) reply {
	var e errorBody
	e.Error.Code, e.Error.Message = code, message
	return jsonReply(status, e)
}

func jsonReply(status int, v any) reply {
	body, err := json.Marshal(v)
	if err != nil { // a key that is not UTF-8 gets no further than validation
		return reply{http.StatusInternalServerError, nil}
	}
	return reply{status, body}
}

func (r reply) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body)
}
