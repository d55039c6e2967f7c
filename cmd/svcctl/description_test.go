package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// schema is a schema of the API description.
type schema struct {
	Ref        string             `yaml:"$ref"`
	Properties map[string]*schema `yaml:"properties"`
	Items      *schema            `yaml:"items"`
	AllOf      []*schema          `yaml:"allOf"`
}

// described is an operation of the API description, or a part of it.
type described struct {
	Ref         string `yaml:"$ref"`
	Name, In    string
	OperationID string `yaml:"operationId"`
	Parameters  []*described
	RequestBody *described `yaml:"requestBody"`
	Responses   map[string]*described
	Content     map[string]struct{ Schema *schema }
}

// description is the API description.
type description struct {
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas       map[string]*schema
		Parameters    map[string]*described
		Responses     map[string]*described
		RequestBodies map[string]*described `yaml:"requestBodies"`
	}
}

func readDescription(t *testing.T) *description {
	t.Helper()
	content, err := os.ReadFile("../../api/docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := yaml.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// resolve follows a reference.
func (d *description) resolve(s *described) *described {
	for s != nil && s.Ref != "" {
		section, name, _ := strings.Cut(strings.TrimPrefix(s.Ref, "#/components/"), "/")
		s = map[string]map[string]*described{
			"parameters": d.Components.Parameters, "responses": d.Components.Responses,
			"requestBodies": d.Components.RequestBodies,
		}[section][name]
	}
	return s
}

// properties returns the properties of a schema, those of its parts included.
func (d *description) properties(s *schema) map[string]*schema {
	all := map[string]*schema{}
	if s == nil {
		return all
	}
	if s.Ref != "" {
		return d.properties(d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")])
	}
	for _, part := range s.AllOf {
		maps.Copy(all, d.properties(part))
	}
	maps.Copy(all, s.Properties)
	return all
}
