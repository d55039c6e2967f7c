package docs

import (
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// JSON converts an OpenAPI document from YAML to JSON. It resolves YAML merge keys, and drops the
// top-level field x-shared, which only holds the targets of merge keys. It lists the codes of the
// known errors in the schema ErrorCode.
func JSON(source []byte, known []Error) ([]byte, error) {
	var document map[string]any
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	delete(document, "x-shared")
	if err := listErrorCodes(document, known); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	return encoded, nil
}

func listErrorCodes(document map[string]any, known []Error) error {
	code := document
	for _, key := range []string{"components", "schemas", "ErrorCode"} {
		inner, ok := code[key].(map[string]any)
		if !ok {
			return fmt.Errorf("docs: OpenAPI document: %s is missing", key)
		}
		code = inner
	}
	var codes []string
	for _, e := range known {
		codes = append(codes, e.Code)
	}
	// x-extensible-enum, unlike enum, tells clients to accept codes that a later release adds.
	code["x-extensible-enum"] = codes
	return nil
}
