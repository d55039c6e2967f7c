package models

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeJSON returns value as compact JSON, without HTML escaping and without a final line break.
// All answers of the API and all webhook bodies have this form.
func EncodeJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("models: encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
