package docs

import (
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// JSON converts an OpenAPI document from YAML to JSON. It resolves merge keys and drops the
// top-level x-shared, which holds parts to merge. It lists the codes of errors in the schema of an
// error's code.
func JSON(source []byte, errors []Error) ([]byte, error) {
	var document map[string]any
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	delete(document, "x-shared")
	if err := listErrorCodes(document, errors); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("docs: OpenAPI document: %w", err)
	}
	return encoded, nil
}

func listErrorCodes(document map[string]any, errors []Error) error {
	code := document
	for _, key := range []string{"components", "schemas", "Errors", "properties", "errors", "items",
		"properties", "code"} {
		inner, ok := code[key].(map[string]any)
		if !ok {
			return fmt.Errorf("docs: OpenAPI document: the schema Errors has no %s", key)
		}
		code = inner
	}
	var codes []string
	for _, e := range errors {
		codes = append(codes, e.Code)
	}
	// The enum stays open, so that clients accept codes that a later release adds.
	code["anyOf"] = []any{map[string]any{"enum": codes}, map[string]any{"type": "string", "pattern": code["pattern"]}}
	delete(code, "pattern")
	return nil
}
