package api

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// Extras are the fields of a batch submission's body that the service does not know. They are kept
// as the JSON of the body without its known fields:
//
//	{"note":"of the body","rows":[{},{"note":"of the second row"}]}
//
// The rows end with the last one that has extras. Extras and stored rows together make up the whole
// body (see storedBody). A later submission under the same batchReference is compared with it.

// The names of the known fields.
var (
	knownOfBatch = []string{"batchReference", "rows"}
	knownOfRow   = []string{"customerReference", "rowReference", "amount"}
)

// batchExtras returns the extras of a valid submission's body in canonical form, nil without any.
func batchExtras(body strictjson.Value) ([]byte, error) {
	var rows []byte
	empty := 0 // rows without extras since the last row with extras
	for _, row := range body.Get("rows").Elements() {
		if row.Len() == len(knownOfRow) {
			empty++
			continue
		}
		for range empty {
			rows = append(separate(rows), "{}"...)
		}
		empty = 0
		rows = append(appendUnknown(append(separate(rows), '{'), row, knownOfRow), '}')
	}
	if rows == nil && body.Len() == len(knownOfBatch) {
		return nil, nil
	}
	text := appendUnknown([]byte{'{'}, body, knownOfBatch)
	text = append(append(append(separate(text), `"rows":[`...), rows...), "]}"...)
	extras, err := strictjson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("api: extras of a batch: %w", err)
	}
	return strictjson.Canonical(extras), nil
}

// storedBody rebuilds the parsed body of the stored submission under a batchReference.
func storedBody(s *models.StoredSubmission, reference string) (strictjson.Value, error) {
	var extras strictjson.Value
	if len(s.Extras) > 0 {
		var err error
		if extras, err = strictjson.Parse(s.Extras); err != nil {
			return extras, fmt.Errorf("api: stored extras: %w", err)
		}
	}
	var extraRows []strictjson.Value
	for _, row := range extras.Get("rows").Elements() {
		extraRows = append(extraRows, row)
	}
	text := appendMember([]byte{'{'}, "batchReference", reference)
	text = append(appendUnknown(text, extras, knownOfBatch), `,"rows":[`...)
	for i, row := range s.Rows {
		text = append(separate(text), '{')
		text = appendMember(text, "customerReference", row.CustomerReference)
		text = appendMember(text, "rowReference", row.RowReference)
		text = strconv.AppendInt(append(text, `,"amount":`...), int64(row.Amount), 10)
		if i < len(extraRows) {
			text = appendUnknown(text, extraRows[i], knownOfRow)
		}
		text = append(text, '}')
	}
	body, err := strictjson.Parse(append(text, "]}"...))
	if err != nil {
		return body, fmt.Errorf("api: stored body of a batch: %w", err)
	}
	return body, nil
}

// separate appends a comma, unless the text is empty or ends with an opening brace or bracket.
func separate(text []byte) []byte {
	if n := len(text); n == 0 || text[n-1] == '{' || text[n-1] == '[' {
		return text
	}
	return append(text, ',')
}

// appendUnknown appends, in canonical form, the members of an object that known does not name.
func appendUnknown(text []byte, object strictjson.Value, known []string) []byte {
	for name, member := range object.Members() {
		if !slices.Contains(known, name) {
			text = append(appendName(text, name), strictjson.Canonical(member)...)
		}
	}
	return text
}

// appendMember appends a member whose value is a string.
func appendMember(text []byte, name, value string) []byte {
	return appendQuoted(appendName(text, name), value)
}

// appendName appends a member's name and a colon.
func appendName(text []byte, name string) []byte {
	return append(appendQuoted(separate(text), name), ':')
}

func appendQuoted(text []byte, s string) []byte {
	text, _ = jsontext.AppendQuote(text, s) // fails only on invalid UTF-8, which the parser has refused
	return text
}
