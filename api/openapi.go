package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPI converts the embedded description to JSON once.
var openAPI = sync.OnceValues(func() ([]byte, error) { return DescriptionJSON(openAPISource) })

// OpenAPI returns the service's OpenAPI 3.1 document as JSON.
func OpenAPI() ([]byte, error) { return openAPI() }

// DescriptionJSON converts an OpenAPI document from YAML to JSON. It resolves merge keys and drops
// the top-level x-shared, which holds parts to merge. It lists the catalogue's codes in the schema
// of an error's code.
func DescriptionJSON(source []byte) ([]byte, error) {
	var document map[string]any
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("api: OpenAPI document: %w", err)
	}
	delete(document, "x-shared")
	if err := listErrorCodes(document); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("api: OpenAPI document: %w", err)
	}
	return encoded, nil
}

func listErrorCodes(document map[string]any) error {
	code := document
	for _, key := range []string{"components", "schemas", "Errors", "properties", "errors", "items",
		"properties", "code"} {
		inner, ok := code[key].(map[string]any)
		if !ok {
			return fmt.Errorf("api: OpenAPI document: the schema Errors has no %s", key)
		}
		code = inner
	}
	var codes []string
	for _, e := range catalogue {
		codes = append(codes, e.Code.URN())
	}
	// The enum stays open, so that clients accept codes that a later release adds.
	code["anyOf"] = []any{map[string]any{"enum": codes}, map[string]any{"type": "string", "pattern": code["pattern"]}}
	delete(code, "pattern")
	return nil
}

// descriptionMaxAge is how long caches may keep the description and its page.
const descriptionMaxAge = 5 * time.Minute

func serveOpenAPI(_ context.Context, r *Request) error {
	document, err := OpenAPI()
	if err != nil {
		return err
	}
	return r.publicDocument(document, descriptionMaxAge)
}
