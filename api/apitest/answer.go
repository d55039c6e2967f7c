package apitest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/docs"
)

// Answer is the server's answer to a request of a Client. Its methods fail the test unless the
// answer is as expected. Those that return the Answer can be chained.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Close  bool // the server closes the connection after this answer

	t testing.TB
}

// Fault is one entry of an error answer. Paths under /checkout answer with messages alone (Shape
// B), all others also with codes (Shape A); see api/docs/guides/errors.md.
type Fault struct {
	Code, Target string // "" in Shape B; the code lacks docs.CodePrefix
	Message      string // for people
}

// Expect fails the test unless the answer has the status.
func (a *Answer) Expect(status int) *Answer {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("status %d, want %d: %.2000s", a.Status, status, a.Body)
	}
	return a
}

// Data decodes the field data of a successful answer into v. The test fails for a field that v
// lacks.
func (a *Answer) Data(v any) *Answer {
	a.t.Helper()
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(a.Body, &envelope); err != nil {
		a.t.Fatalf("%v: %.2000s", err, a.Body)
	}
	decoder := json.NewDecoder(strings.NewReader(string(envelope.Data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		a.t.Fatalf("%v: %.2000s", err, a.Body)
	}
	return a
}

// TraceID returns the traceId of the answer, "" if it has none.
func (a *Answer) TraceID() string {
	a.t.Helper()
	var envelope struct {
		TraceID string `json:"traceId"`
	}
	if err := json.Unmarshal(a.Body, &envelope); err != nil {
		a.t.Fatalf("%v: %.2000s", err, a.Body)
	}
	return envelope.TraceID
}

// Faults returns the entries of an error answer.
func (a *Answer) Faults() []Fault {
	a.t.Helper()
	var envelope struct {
		Errors []struct{ Code, Target, DisplayMessage, Message string }
	}
	if err := json.Unmarshal(a.Body, &envelope); err != nil {
		a.t.Fatalf("%v: %.2000s", err, a.Body)
	}
	var faults []Fault
	for _, e := range envelope.Errors {
		code := strings.TrimPrefix(e.Code, docs.CodePrefix)
		faults = append(faults, Fault{Code: code, Target: e.Target, Message: e.DisplayMessage + e.Message})
	}
	return faults
}

// Refused fails the test unless the answer has the status and exactly these faults of Shape A, in
// this order. Each fault is written as "code" or "code target".
func (a *Answer) Refused(status int, faults ...string) *Answer {
	a.t.Helper()
	a.Expect(status)
	var got []string
	for _, f := range a.Faults() {
		got = append(got, strings.TrimSuffix(f.Code+" "+f.Target, " "))
	}
	if diff := cmp.Diff(faults, got); diff != "" {
		a.t.Fatalf("faults (-want +got):\n%s%s", diff, a.Body)
	}
	return a
}
