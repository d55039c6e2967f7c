package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS string

// description is the part of the OpenAPI document that the page shows.
type description struct {
	Info struct{ Title, Version, Summary, Description string }
	Tags []struct{ Name, Description string }
	// Paths maps each path to its methods and their operations. Other keys of a path are ignored.
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]docParameter
		Responses  map[string]docResponse
		Schemas    map[string]docSchema
	}
}

type docOperation struct {
	ID          string `json:"operationId"`
	Method      string `json:"-"`
	Path        string `json:"-"`
	Tags        []string
	Summary     string
	Description string
	Security    []map[string][]string
	Parameters  []docParameter
	RequestBody struct {
		Content  docContent
		Required bool
	}
	Body     []docField             // the fields of the request body
	ByStatus map[string]docResponse `json:"responses"`
}

type docParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                docSchema
	Type                  string `json:"-"`
}

type docResponse struct {
	Ref         string `json:"$ref"`
	Status      string `json:"-"`
	Description string
	Content     docContent
	Headers     map[string]json.RawMessage
	Body        []docField `json:"-"` // the fields of a success
}

// HeaderNames returns the names of the documented headers, sorted.
func (r docResponse) HeaderNames() []string { return slices.Sorted(maps.Keys(r.Headers)) }

type docSection struct {
	Name, Description string
	Operations        []docOperation
}

// Scopes returns the scopes that the operation's token must have.
func (o docOperation) Scopes() []string {
	var scopes []string
	for _, requirement := range o.Security {
		for _, s := range requirement {
			scopes = append(scopes, s...)
		}
	}
	return scopes
}

// Responses returns the answers in the order of their status.
func (o docOperation) Responses() []docResponse {
	var list []docResponse
	for _, status := range slices.Sorted(maps.Keys(o.ByStatus)) {
		answer := o.ByStatus[status]
		answer.Status = status
		list = append(list, answer)
	}
	return list
}

// docs renders the page once.
var docs = sync.OnceValues(func() ([]byte, error) {
	d, err := apiDescription()
	if err != nil {
		return nil, err
	}
	sections, err := d.sections()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = template.Must(template.New("docs").Funcs(template.FuncMap{"prose": prose}).Parse(docsHTML)).
		Execute(&page, map[string]any{
			"Info": d.Info, "Sections": sections, "Errors": catalogue,
			"Style": template.CSS(docsCSS), //nolint:gosec // embedded
		})
	return page.Bytes(), err
})

// sections groups the operations by their first tag, in the order of the document's tags, then by
// path.
func (d description) sections() ([]docSection, error) {
	byTag := make(map[string][]docOperation)
	for path, item := range d.Paths {
		for method, raw := range item {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			o := docOperation{Method: strings.ToUpper(method), Path: path}
			if err := json.Unmarshal(raw, &o); err != nil {
				return nil, fmt.Errorf("api: OpenAPI document: %s %s: %w", method, path, err)
			}
			d.resolve(&o)
			tag := ""
			if len(o.Tags) > 0 {
				tag = o.Tags[0]
			}
			byTag[tag] = append(byTag[tag], o)
		}
	}
	var sections []docSection
	for _, tag := range d.Tags {
		operations := byTag[tag.Name]
		slices.SortFunc(operations, func(a, b docOperation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
		})
		sections = append(sections, docSection{tag.Name, tag.Description, operations})
	}
	return sections, nil
}

// resolve replaces references to shared parameters and answers, and lists the fields of bodies.
func (d description) resolve(o *docOperation) {
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

func serveDocs(_ context.Context, r *Request) error {
	page, err := docs()
	if err != nil {
		return err
	}
	style := sha256.Sum256([]byte(docsCSS))
	r.SetHeader("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(style[:])+
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	r.SetHeader("Referrer-Policy", "no-referrer")
	r.SetHeader("Cache-Control", fmt.Sprintf("public, max-age=%d", seconds(descriptionMaxAge)))
	return r.Bytes(http.StatusOK, "text/html;charset=UTF-8", page)
}
