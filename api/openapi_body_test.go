package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"partnerbilling/api/apitest"
)

// body is a body of a request or an answer in the description.
type body struct {
	where     string
	mediaType string
	content   *openapi3.MediaType
}

// describedBodies returns every body of the description, those of webhooks and of shared answers
// included.
func describedBodies(document *openapi3.T) []body {
	var bodies []body
	add := func(where string, content openapi3.Content) {
		for mediaType, c := range content {
			bodies = append(bodies, body{where, mediaType, c})
		}
	}
	items := document.Paths.Map()
	maps.Copy(items, document.Webhooks)
	for path, item := range items {
		for method, operation := range item.Operations() {
			where := method + " " + path
			if operation.RequestBody != nil {
				add(where, operation.RequestBody.Value.Content)
			}
			for status, response := range operation.Responses.Map() {
				add(where+" "+status, response.Value.Content)
			}
		}
	}
	for name, response := range document.Components.Responses {
		add(name, response.Value.Content)
	}
	return bodies
}

// Generators name types after schemas: a schema without a name becomes a type that says nothing.
func TestEveryBodyHasANamedSchemaAndAValidExample(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	bodies := describedBodies(description.Document())
	if len(bodies) < 300 {
		t.Fatalf("the description has only %d bodies", len(bodies))
	}
	for _, b := range bodies {
		if !strings.HasPrefix(b.mediaType, "text/") && b.content.Schema.Ref == "" {
			t.Errorf("%s: the schema of %s has no name", b.where, b.mediaType)
		}
		examples := []any{b.content.Example}
		if b.content.Example == nil {
			examples = nil
		}
		for _, example := range b.content.Examples {
			examples = append(examples, example.Value.Value)
		}
		if len(examples) == 0 {
			t.Errorf("%s: %s has no example", b.where, b.mediaType)
		}
		for _, example := range examples {
			if err := b.content.Schema.Value.VisitJSON(example, openapi3.EnableJSONSchema2020()); err != nil {
				t.Errorf("%s: the example of %s: %v", b.where, b.mediaType, err)
			}
		}
	}
}

// Generators put all components into one namespace, some without regard to case.
func TestComponentNamesAreUnique(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	document := description.Document()
	taken := make(map[string]string)
	take := func(kind string, names ...string) {
		for _, name := range names {
			key := strings.ToLower(name)
			if other, ok := taken[key]; ok {
				t.Errorf("the %s %s has the name of a %s", kind, name, other)
			}
			taken[key] = kind
		}
	}
	components := document.Components
	take("schema", slices.Collect(maps.Keys(components.Schemas))...)
	take("parameter", slices.Collect(maps.Keys(components.Parameters))...)
	take("response", slices.Collect(maps.Keys(components.Responses))...)
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, suffix := range []string{"", "Request", "Response", "Params"} {
				if kind, ok := taken[strings.ToLower(operation.OperationID+suffix)]; ok && suffix != "" {
					t.Errorf("%s %s: the %s %s%s would hide a generated type", method, path, kind,
						operation.OperationID, suffix)
				}
			}
		}
	}
}

// An object or an enum within another schema has a name of its own.
func TestObjectsAndEnumsAreNamed(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, schema := range description.Document().Components.Schemas {
		for where, inner := range parts(schema.Value) {
			checked++
			isObject := inner.Value.Type.Is("object") && len(inner.Value.Properties) > 0
			if inner.Ref == "" && (isObject || len(inner.Value.Enum) > 0) {
				t.Errorf("%s%s has no name", name, where)
			}
		}
	}
	if checked < 200 {
		t.Errorf("the description has only %d properties", checked)
	}
}

// parts returns the schemas that a schema consists of, without those of named ones.
func parts(schema *openapi3.Schema) map[string]*openapi3.SchemaRef {
	found := make(map[string]*openapi3.SchemaRef)
	add := func(where string, inner *openapi3.SchemaRef) {
		if inner == nil {
			return
		}
		found[where] = inner
		if inner.Ref == "" {
			for deeper, part := range parts(inner.Value) {
				found[where+deeper] = part
			}
		}
	}
	for name, property := range schema.Properties {
		add("."+name, property)
	}
	add("[]", schema.Items)
	add(".*", schema.AdditionalProperties.Schema)
	for i, choice := range slices.Concat(schema.AnyOf, schema.OneOf, schema.AllOf) {
		add(fmt.Sprintf("(%d)", i), choice)
	}
	return found
}
