package rail

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"

	"partnerbilling/models"
)

// listBody is the body of a successful answer to a list request. Every member is required.
type listBody struct {
	Debits       []listedBody   `json:"debits"`
	More         *bool          `json:"more"`
	CompleteFrom *models.Millis `json:"completeFrom"`
	CompleteTo   *models.Millis `json:"completeTo"`
}

// listedBody is one debit of a listBody. DebitedAt is in milliseconds of Unix time.
type listedBody struct {
	Key         string        `json:"key"`
	AgreementID string        `json:"agreementId"`
	Amount      models.Amount `json:"amount"`
	Currency    string        `json:"currency"`
	DebitedAt   models.Millis `json:"debitedAt"`
}

// values returns the query as parameters of a URL.
func (q ListQuery) values() url.Values {
	v := url.Values{}
	v.Set("from", strconv.FormatInt(int64(q.From), 10))
	v.Set("to", strconv.FormatInt(int64(q.To), 10))
	v.Set("limit", strconv.Itoa(q.Limit))
	if q.AfterKey != "" {
		v.Set("afterKey", q.AfterKey)
	}
	return v
}

// parseListQuery reads the query part of a URL, the inverse of values. It refuses repeated and
// unknown parameters.
func parseListQuery(raw string) (q ListQuery, err error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return q, errors.New("the query is not readable")
	}
	for name, values := range v {
		if len(values) != 1 {
			return q, fmt.Errorf("%.20s is repeated", name)
		}
		var n int64
		if name != "afterKey" {
			n, err = strconv.ParseInt(values[0], 10, 64)
		}
		switch name {
		case "from":
			q.From = models.Millis(n)
		case "to":
			q.To = models.Millis(n)
		case "limit":
			q.Limit = int(n)
		case "afterKey":
			q.AfterKey = values[0]
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return q, fmt.Errorf("%.20s is not a parameter of the list, or its value is invalid", name)
		}
	}
	if !v.Has("from") || !v.Has("to") || !v.Has("limit") {
		return q, errors.New("from, to and limit are required")
	}
	return q, q.Validate()
}

// listReply returns the answer that carries a page. readList is its inverse.
func listReply(p ListPage) reply {
	b := listBody{
		Debits: make([]listedBody, len(p.Debits)), More: &p.More,
		CompleteFrom: &p.CompleteFrom, CompleteTo: &p.CompleteTo,
	}
	for i, d := range p.Debits {
		b.Debits[i] = listedBody{d.Key, d.AgreementID, d.Amount, d.Currency, d.DebitedAt}
	}
	return jsonReply(http.StatusOK, b)
}

// readList reads the answer to a list request, and checks that it fits the query.
func readList(q ListQuery, status int, body []byte) (ListPage, error) {
	if status != http.StatusOK {
		var e errorBody
		_ = json.Unmarshal(body, &e) // the error text has the code, if there is one
		return ListPage{}, fmt.Errorf("rail: list: HTTP %d, code %.40q", status, e.Error.Code)
	}
	var b listBody
	if err := json.Unmarshal(body, &b); err != nil {
		return ListPage{}, errors.New("rail: list: HTTP 200 without a readable body")
	}
	if b.Debits == nil || b.More == nil || b.CompleteFrom == nil || b.CompleteTo == nil {
		return ListPage{}, errors.New("rail: list: the answer lacks debits, more, completeFrom or completeTo")
	}
	p := ListPage{
		Debits: make([]ListedDebit, len(b.Debits)), More: *b.More,
		CompleteFrom: *b.CompleteFrom, CompleteTo: *b.CompleteTo,
	}
	for i, d := range b.Debits {
		p.Debits[i] = ListedDebit{d.Key, Particulars{d.AgreementID, d.Amount, d.Currency}, d.DebitedAt}
	}
	if err := p.check(q); err != nil {
		return ListPage{}, err
	}
	return p, nil
}
