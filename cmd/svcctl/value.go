package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object of the API's data, in the order of its members. Tables and CSV are made
// from it.
type object []member

// member is a member of an object. Its value is a string, a json.Number, a bool, nil, an object or
// a []any.
type member struct {
	name  string
	value any
}

// get returns the value at a path such as "counts.succeeded". Several paths are separated by "|",
// as in "correctedOutcome|outcome": get then returns the first value that is not nil. It returns
// nil if there is none.
func (o object) get(paths string) any {
	for path := range strings.SplitSeq(paths, "|") {
		if value := o.at(path); value != nil {
			return value
		}
	}
	return nil
}

// at returns the value at one path, or nil.
func (o object) at(path string) any {
	name, rest, deeper := strings.Cut(path, ".")
	for _, m := range o {
		if m.name != name {
			continue
		}
		if !deeper {
			return m.value
		}
		inner, _ := m.value.(object)
		return inner.at(rest)
	}
	return nil
}

// parseObject parses a JSON object that the API has returned.
func parseObject(raw json.RawMessage) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value, err := parseValue(decoder)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	o, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("the response is not an object: %.100s", raw)
	}
	return o, nil
}

// parseValue parses the next JSON value.
func parseValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			value, err := parseValue(decoder)
			if err != nil {
				return nil, err
			}
			o = append(o, member{fmt.Sprint(name), value})
		}
		_, err = decoder.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			value, err := parseValue(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = decoder.Token()
		return list, err
	}
	return token, nil
}

// timeFields are the names of the fields that hold Unix milliseconds. Tables show them as times.
var timeFields = map[string]bool{
	"at": true, "now": true, "invitedAt": true, "expiresAt": true, "linkedAt": true, "submittedAt": true,
	"settleBy": true, "settledAt": true, "nextAttemptAt": true, "createdAt": true, "updatedAt": true,
	"disabledAt": true, "retryAt": true, "requestedAt": true, "deliveredAt": true, "startedAt": true,
	"activateAt": true, "overlapTo": true, "resumeFrom": true,
}

// display returns the value of a field for a table. A time is in UTC, a list of plain values is
// separated by commas, and objects are JSON. It replaces control characters.
func display(field string, value any) string {
	number, ok := value.(json.Number)
	first, _, _ := strings.Cut(field, "|")
	if ok && timeFields[first[strings.LastIndexByte(first, '.')+1:]] {
		if ms, err := number.Int64(); err == nil {
			return time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
	}
	if list, ok := value.([]any); ok && !slices.ContainsFunc(list, isObject) {
		texts := make([]string, len(list))
		for i, item := range list {
			texts[i] = display(field, item)
		}
		return strings.Join(texts, ", ")
	}
	return printable(text(value))
}

// isObject reports whether a value is an object.
func isObject(value any) bool {
	_, is := value.(object)
	return is
}

// text returns a value as JSON. It returns a string without quotation marks, and "" for null.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	var b strings.Builder
	writeJSON(&b, value)
	return b.String()
}

// writeJSON writes a value as compact JSON.
func writeJSON(w io.Writer, value any) {
	switch v := value.(type) {
	case object:
		fmt.Fprint(w, "{")
		for i, m := range v {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			writeJSON(w, m.name)
			fmt.Fprint(w, ":")
			writeJSON(w, m.value)
		}
		fmt.Fprint(w, "}")
	case []any:
		fmt.Fprint(w, "[")
		for i, item := range v {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			writeJSON(w, item)
		}
		fmt.Fprint(w, "]")
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			encoded = []byte("null")
		}
		_, _ = w.Write(encoded)
	}
}
