package docs

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// document is the part of the OpenAPI document that the page shows.
type document struct {
	Info Info
	Tags []struct{ Name, Description string }
	// Paths maps each path to its methods and their operations. Other keys of a path are ignored.
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]response
		Schemas    map[string]schema
	}
}

type operation struct {
	ID          string `json:"operationId"`
	Method      string `json:"-"`
	Path        string `json:"-"`
	Tags        []string
	Summary     string
	Description string
	Security    []map[string][]string
	Parameters  []parameter
	RequestBody struct {
		Content  content
		Required bool
	}
	Body     []field             // the fields of the request body
	ByStatus map[string]response `json:"responses"`
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
	Type                  string `json:"-"`
}

type response struct {
	Ref         string `json:"$ref"`
	Status      string `json:"-"`
	Description string
	Content     content
	Headers     map[string]json.RawMessage
	Body        []field `json:"-"` // the fields of a success
}

// HeaderNames returns the names of the documented headers, sorted.
func (r response) HeaderNames() []string { return slices.Sorted(maps.Keys(r.Headers)) }

type section struct {
	Name, Description string
	Operations        []operation
}

// Scopes returns the scopes that the operation's token must have.
func (o operation) Scopes() []string {
	var scopes []string
	for _, requirement := range o.Security {
		for _, s := range requirement {
			scopes = append(scopes, s...)
		}
	}
	return scopes
}

// Responses returns the answers in the order of their status.
func (o operation) Responses() []response {
	var list []response
	for _, status := range slices.Sorted(maps.Keys(o.ByStatus)) {
		answer := o.ByStatus[status]
		answer.Status = status
		list = append(list, answer)
	}
	return list
}

// render renders the page.
func (d *document) render(errors []Error) ([]byte, error) {
	sections, err := d.sections()
	if err != nil {
		return nil, err
	}
	page, err := template.New("docs").Funcs(template.FuncMap{"prose": prose}).Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("docs: page: %w", err)
	}
	var rendered bytes.Buffer
	err = page.Execute(&rendered, map[string]any{
		"Info": d.Info, "Sections": sections, "Errors": errors,
		"Style": template.CSS(pageCSS), //nolint:gosec // embedded
	})
	if err != nil {
		return nil, fmt.Errorf("docs: page: %w", err)
	}
	return rendered.Bytes(), nil
}

// sections groups the operations by their first tag, in the order of the document's tags, then by
// path.
func (d *document) sections() ([]section, error) {
	byTag := make(map[string][]operation)
	for path, item := range d.Paths {
		for method, raw := range item {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			o := operation{Method: strings.ToUpper(method), Path: path}
			if err := json.Unmarshal(raw, &o); err != nil {
				return nil, fmt.Errorf("docs: OpenAPI document: %s %s: %w", method, path, err)
			}
			d.resolve(&o)
			tag := ""
			if len(o.Tags) > 0 {
				tag = o.Tags[0]
			}
			byTag[tag] = append(byTag[tag], o)
		}
	}
	var sections []section
	for _, tag := range d.Tags {
		operations := byTag[tag.Name]
		slices.SortFunc(operations, func(a, b operation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
		})
		sections = append(sections, section{tag.Name, tag.Description, operations})
	}
	return sections, nil
}

// resolve replaces references to shared parameters and answers, and lists the fields of bodies.
func (d *document) resolve(o *operation) {
	for i, p := range o.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[lastOf(p.Ref)]
		}
		schema := d.follow(p.Schema)
		p.Type, p.Description = schema.kind(), cmp.Or(p.Description, schema.Description)
		o.Parameters[i] = p
	}
	o.Body = d.bodyFields(o.RequestBody.Content)
	for status, r := range o.ByStatus {
		if r.Ref != "" {
			shared := d.Components.Responses[lastOf(r.Ref)]
			shared.Description = cmp.Or(r.Description, shared.Description)
			r = shared
		}
		if status < "300" {
			r.Body = d.bodyFields(r.Content)
		}
		o.ByStatus[status] = r
	}
}
