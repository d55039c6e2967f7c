// Package apitest supports tests of the HTTP API. Its client talks to a running server over real
// connections and checks every answer against the API description.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"partnerbilling/api"
	"partnerbilling/api/strictjson"
)

func init() {
	// kin-openapi has no decoders for these media types.
	for _, text := range []string{"text/html", "text/css", "text/javascript"} {
		openapi3filter.RegisterBodyDecoder(text, openapi3filter.RegisteredBodyDecoder("text/plain"))
	}
}

// Description is an OpenAPI document that answers are checked against.
type Description struct {
	doc *openapi3.T
}

// ParseDescription parses and validates an OpenAPI 3.1 document in JSON, and makes its object
// schemas reject undocumented properties.
func ParseDescription(document []byte) (*Description, error) {
	closed, err := closeSchemas(document)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(closed)
	if err != nil {
		return nil, fmt.Errorf("apitest: read the description: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("apitest: validate the description: %w", err)
	}
	return &Description{doc}, nil
}

// served parses the published description once for all tests.
var served = sync.OnceValues(func() (*Description, error) {
	document, err := api.OpenAPI()
	if err != nil {
		return nil, err
	}
	return ParseDescription(document)
})

// Served returns the description that the service publishes.
func Served() (*Description, error) { return served() }

// Document returns the description as kin-openapi has parsed it.
func (d *Description) Document() *openapi3.T { return d.doc }

// closeSchemas makes each object schema that lists its properties refuse all others, unless the
// schema sets additionalProperties itself. An undocumented field of an answer then fails the test.
func closeSchemas(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("apitest: read the description: %w", err)
	}
	closeTree(tree)
	return json.Marshal(tree)
}

// closeTree closes the object schemas in one part of the document, at any depth.
func closeTree(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, isObject := node["properties"].(map[string]any); isObject && node["type"] == "object" {
			if _, isSet := node["additionalProperties"]; !isSet {
				node["additionalProperties"] = false
			}
		}
		for _, child := range node {
			closeTree(child)
		}
	case []any:
		for _, child := range node {
			closeTree(child)
		}
	}
}

// Operation returns the path template and the operation that match a request, or "" and nil.
// escapedPath is percent-encoded and has no query. HEAD counts as GET.
func (d *Description) Operation(method, escapedPath string) (path string, operation *openapi3.Operation) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	segments := strings.Split(escapedPath, "/")
	for template, item := range d.doc.Paths.Map() {
		if !matches(strings.Split(template, "/"), segments) {
			continue
		}
		// The template with the fewest parameters takes precedence.
		o := item.GetOperation(method)
		if o != nil && (operation == nil || strings.Count(template, "{") < strings.Count(path, "{")) {
			path, operation = template, o
		}
	}
	return path, operation
}

// matches reports whether a path fits a template, segment by segment. A parameter of the template
// fits every segment that is not empty.
func matches(template, segments []string) bool {
	return slices.EqualFunc(template, segments, func(t, s string) bool {
		return t == s || strings.HasPrefix(t, "{") && s != ""
	})
}

// Check returns an error if the answer to a method and a path does not conform to the description.
// An undocumented path or method must be answered with 404 or 405.
func (d *Description) Check(method, escapedPath string, answer *Answer) error {
	path, operation := d.Operation(method, escapedPath)
	if err := checkProtection(escapedPath, answer); err != nil {
		return err
	}
	switch {
	case operation != nil:
		if err := d.checkDocumented(method, answer, path, operation); err != nil {
			return err
		}
	case answer.Status != http.StatusNotFound && answer.Status != http.StatusMethodNotAllowed:
		return fmt.Errorf("undocumented path or method answered %d, want 404 or 405", answer.Status)
	}
	if answer.Status == http.StatusMethodNotAllowed && answer.Header.Get("Allow") == "" {
		return fmt.Errorf("405 without Allow")
	}
	isPage := strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") &&
		(operation != nil || mayBePage(escapedPath, answer.Status))
	hasErrorSchema := !isPage && method != http.MethodHead && !strings.HasPrefix(path, "/oauth2/")
	if answer.Status >= http.StatusBadRequest && hasErrorSchema {
		return d.checkError(escapedPath, answer)
	}
	return nil
}

// mayBePage reports whether the answer at an undocumented path may be an HTML page. Only a 404
// outside the API may.
func mayBePage(path string, status int) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	apiAreas := []string{"billing", "checkout", "webhooks", "oauth2", "customer-app", "sandbox", "traces"}
	return status == http.StatusNotFound && !slices.Contains(apiAreas, first)
}

// checkProtection checks the security headers of an answer: X-Content-Type-Options, Cache-Control
// and those of pages.
func checkProtection(path string, answer *Answer) error {
	if got := answer.Header.Get("X-Content-Type-Options"); got != "nosniff" {
		return fmt.Errorf("X-Content-Type-Options %q, not nosniff", got)
	}
	needsNoStore := answer.Status == http.StatusNotModified ||
		strings.Contains(answer.Header.Get("Content-Type"), "json")
	isPublic := answer.Status == http.StatusOK && (strings.HasPrefix(path, "/.well-known/") || path == "/openapi.json")
	if got := answer.Header.Get("Cache-Control"); needsNoStore && !isPublic && got != "no-store" {
		return fmt.Errorf("Cache-Control %q, not no-store", got)
	}
	if !strings.Contains(answer.Header.Get("Content-Type"), "text/html") {
		return nil
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; ", "Referrer-Policy": "no-referrer",
	} {
		if got := answer.Header.Get(name); !strings.HasPrefix(got, want) {
			return fmt.Errorf("header %s of a page is %q, want prefix %q", name, got, want)
		}
	}
	return nil
}

// checkDocumented checks status, headers and body against the operation, and the rules of
// checkJSON.
func (d *Description) checkDocumented(method string, answer *Answer, path string, operation *openapi3.Operation) error {
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: method},
			Route: &routers.Route{
				Spec: d.doc, Path: path, PathItem: d.doc.Paths.Value(path), Method: method, Operation: operation,
			},
		},
		Status:  answer.Status,
		Header:  answer.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	input.SetBodyBytes(answer.Body)
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		return fmt.Errorf("not as described: %w", err)
	}
	return checkJSON(answer, path)
}

// checkJSON checks rules beyond the schemas: the exact content type, strict JSON and no null. The
// body of /openapi.json is exempt.
func checkJSON(answer *Answer, path string) error {
	contentType := answer.Header.Get("Content-Type")
	if !strings.Contains(contentType, "json") {
		return nil
	}
	if contentType != api.ContentTypeJSON {
		return fmt.Errorf("content type %q, not %q", contentType, api.ContentTypeJSON)
	}
	if len(answer.Body) == 0 || path == "/openapi.json" {
		return nil
	}
	value, err := strictjson.Parse(answer.Body)
	if err != nil {
		return fmt.Errorf("body is not strict JSON: %w", err)
	}
	if hasNull(value) {
		return fmt.Errorf("the body contains null: %s", answer.Body)
	}
	return nil
}

func hasNull(v strictjson.Value) bool {
	for _, member := range v.Members() {
		if hasNull(member) {
			return true
		}
	}
	for _, element := range v.Elements() {
		if hasNull(element) {
			return true
		}
	}
	return v.Kind() == strictjson.Null
}

// checkError checks an error answer against the schema CheckoutErrors if the path is at or below
// /checkout, otherwise against Errors.
func (d *Description) checkError(path string, answer *Answer) error {
	if got := answer.Header.Get("Content-Type"); got != api.ContentTypeJSON {
		return fmt.Errorf("error has content type %q, want %q", got, api.ContentTypeJSON)
	}
	name := "Errors"
	if path == "/checkout" || strings.HasPrefix(path, "/checkout/") {
		name = "CheckoutErrors"
	}
	var body any
	if err := json.Unmarshal(answer.Body, &body); err != nil {
		return fmt.Errorf("decode error body: %w", err)
	}
	schema := d.doc.Components.Schemas[name]
	if schema == nil {
		return fmt.Errorf("the description has no schema %s", name)
	}
	if err := schema.Value.VisitJSON(body, openapi3.EnableJSONSchema2020(), openapi3.VisitAsResponse()); err != nil {
		return fmt.Errorf("does not match the schema %s: %w", name, err)
	}
	return nil
}
