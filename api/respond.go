package api

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"partnerbilling/models"
)

// ContentTypeJSON is the Content-Type of every JSON answer, success and error alike.
const ContentTypeJSON = "application/json;charset=UTF-8"

// Header names.
const (
	headerVersion        = "Svc-Api-Version"
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed"
)

// EncodeData encodes the data of an answer as compact JSON without HTML escaping.
func EncodeData(data any) ([]byte, error) { return models.EncodeJSON(data) }

// JSON answers with data in the success envelope: {"data": …, "traceId": …}.
func (r *Request) JSON(status int, data any) error {
	encoded, err := EncodeData(data)
	if err != nil {
		return err
	}
	return r.JSONBytes(status, encoded)
}

// largeAnswer is the size in bytes from which the data of an answer counts as large. Large data is
// not copied. A batchReader limits and caches the large answers of batches.
const largeAnswer = 64 << 10

// JSONBytes answers like JSON, with data that EncodeData has encoded. The data must not be changed
// afterwards.
func (r *Request) JSONBytes(status int, data []byte) error {
	if len(data) >= largeAnswer {
		return r.jsonParts(status, data)
	}
	return r.Bytes(status, ContentTypeJSON, envelope(data, r.trace))
}

// jsonParts answers like JSONBytes, but does not copy the data. Other answers may share the data.
func (r *Request) jsonParts(status int, data []byte) error {
	body := net.Buffers{[]byte(`{"data":`), data, []byte(`,"traceId":"` + string(r.trace) + `"}`)}
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if err := r.Bytes(status, ContentTypeJSON, nil); err != nil {
		return err
	}
	r.fast.Response.SetBodyStream(&body, size)
	return nil
}

// envelope wraps encoded data in the success envelope.
func envelope(data []byte, trace models.TraceID) []byte {
	body := make([]byte, 0, len(data)+64)
	body = append(append(body, `{"data":`...), data...)
	return append(append(append(body, `,"traceId":"`...), trace...), `"}`...)
}

// Bytes answers with a body of any type. The caller must not change the body afterwards. Bytes
// forbids caching unless the header Cache-Control is set already.
func (r *Request) Bytes(status int, contentType string, body []byte) error {
	response := &r.fast.Response
	if len(response.Header.Peek("Cache-Control")) == 0 {
		r.SetHeader("Cache-Control", "no-store")
	}
	response.SetStatusCode(status)
	response.Header.SetContentType(contentType)
	response.SetBodyRaw(body)
	return nil
}

// NotModified answers 304 with the entity tag.
func (r *Request) NotModified(etag string) error {
	r.SetHeader("ETag", etag)
	r.SetHeader("Cache-Control", "no-store")
	r.fast.Response.SetStatusCode(http.StatusNotModified)
	return nil
}

// SetHeader sets a header of the answer.
func (r *Request) SetHeader(name, value string) { r.fast.Response.Header.Set(name, value) }

// Location sets the header Location to the path that PathOf returns.
func (r *Request) Location(segments ...string) { r.SetHeader("Location", PathOf(segments...)) }

// PathOf returns the path of the segments. It percent-encodes each segment, and puts a slash before
// each.
func PathOf(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// RetryAfter sets the header Retry-After to d in whole seconds, rounded up.
func (r *Request) RetryAfter(d time.Duration) { r.SetHeader("Retry-After", seconds(d)) }

// Replayed marks the answer as a repetition of the answer to an earlier, identical request.
func (r *Request) Replayed() { r.SetHeader(headerReplayed, "true") }

// The two shapes of error answers; see isShapeB.
type (
	shapeA struct {
		Errors  []shapeAError  `json:"errors"`
		TraceID models.TraceID `json:"traceId"`
	}
	shapeAError struct {
		Code           string `json:"code"`
		DisplayMessage string `json:"displayMessage"`
		Target         string `json:"target,omitempty"`
	}
	shapeB struct {
		Errors    []shapeBError  `json:"errors"`
		TraceID   models.TraceID `json:"traceId"`
		Timestamp models.Millis  `json:"timestamp"`
	}
	shapeBError struct {
		Message string `json:"message"`
	}
)

// errorBody encodes an error answer in Shape B if isB is set, else in Shape A. It leaves out faults
// beyond MaxFaults.
func errorBody(e *Error, trace models.TraceID, isB bool, now time.Time) []byte {
	faults := e.Faults[:min(len(e.Faults), MaxFaults)]
	var answer any
	if isB {
		b := shapeB{TraceID: trace, Timestamp: models.MillisOf(now)}
		for _, f := range faults {
			b.Errors = append(b.Errors, shapeBError{f.Message})
		}
		answer = b
	} else {
		a := shapeA{TraceID: trace}
		for _, f := range faults {
			a.Errors = append(a.Errors, shapeAError{f.Code.URN(), f.Message, f.Target})
		}
		answer = a
	}
	body, _ := EncodeData(answer) // strings and integers always encode
	return body
}
