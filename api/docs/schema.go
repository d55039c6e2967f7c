package docs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// content maps a media type to the schema of a body.
type content map[string]struct{ Schema schema }

// schema is the part of a JSON Schema that the page shows.
type schema struct {
	Ref         string `json:"$ref"`
	Type        any    // a name or a list of names
	Description string
	Required    []string
	Properties  map[string]schema
	Items       *schema
	AnyOf       []schema
	Enum        []any
	Const       any
	Default     any
	Minimum     json.Number
	Maximum     json.Number
	MinLength   json.Number
	MaxLength   json.Number
	MinItems    json.Number
	MaxItems    json.Number
}

// field describes a field. Its name is the one in errors, with [] for any element.
type field struct {
	Name, Type, Meaning string
	Required            bool
}

// follow resolves references, and replaces a nullable schema by its other alternative. A
// description beside the reference wins.
func (d *document) follow(s schema) schema {
	for _, option := range s.AnyOf {
		if option.Type != "null" {
			option.Description = cmp.Or(s.Description, option.Description)
			return d.follow(option)
		}
	}
	if s.Ref == "" {
		return s
	}
	target := d.follow(d.Components.Schemas[lastOf(s.Ref)])
	target.Description = cmp.Or(s.Description, target.Description)
	return target
}

func lastOf(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// maxFieldDepth bounds the recursion into schemas that contain themselves.
const maxFieldDepth = 6

// fields lists the fields of an object and of its nested objects, required ones first.
func (d *document) fields(s schema, prefix string) []field {
	if strings.Count(prefix, ".") > maxFieldDepth {
		return nil
	}
	s = d.follow(s)
	names := slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		required := func(name string) int { return slices.Index(append(slices.Clone(s.Required), name), name) }
		return cmp.Or(cmp.Compare(required(a), required(b)), strings.Compare(a, b))
	})
	var list []field
	for _, name := range names {
		value := d.follow(s.Properties[name])
		list = append(list, field{prefix + name, value.kind(), value.Description, slices.Contains(s.Required, name)})
		inner := prefix + name + "."
		for value.Items != nil {
			value, inner = d.follow(*value.Items), strings.TrimSuffix(inner, ".")+"[]."
		}
		list = append(list, d.fields(value, inner)...)
	}
	return list
}

// kind describes the values that a schema allows.
func (s schema) kind() string {
	if s.Const != nil {
		return fmt.Sprintf("`%v`", s.Const)
	}
	if len(s.Enum) > 0 {
		names := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			names[i] = fmt.Sprintf("`%v`", v)
		}
		return "one of " + strings.Join(names, ", ")
	}
	text := "any"
	if name, ok := s.Type.(string); ok {
		text = name
	}
	for _, r := range []struct {
		from, to json.Number
		unit     string
	}{{s.Minimum, s.Maximum, ""}, {s.MinLength, s.MaxLength, " characters"}, {s.MinItems, s.MaxItems, " elements"}} {
		text += span(r.from, r.to, r.unit)
	}
	if s.Default != nil {
		text += fmt.Sprintf("; default %v", s.Default)
	}
	return text
}

func span(from, to json.Number, unit string) string {
	switch {
	case from != "" && to != "":
		return fmt.Sprintf(", %s to %s%s", from, to, unit)
	case to != "":
		return fmt.Sprintf(", at most %s%s", to, unit)
	case from != "" && from != "0":
		return fmt.Sprintf(", at least %s%s", from, unit)
	default:
		return ""
	}
}

// bodyFields lists the fields of a JSON or form body. Answers show their data without the envelope.
func (d *document) bodyFields(content content) []field {
	for _, media := range []string{"application/json", "application/x-www-form-urlencoded"} {
		body, ok := content[media]
		if !ok {
			continue
		}
		schema := d.follow(body.Schema)
		if data, ok := schema.Properties["data"]; ok {
			schema = data
		}
		return d.fields(schema, "")
	}
	return nil
}

var codeSpan = regexp.MustCompile("`([^`]*)`")

// prose renders the description's text as HTML: paragraphs, and code between backticks.
func prose(text string) template.HTML {
	escaped := codeSpan.ReplaceAllString(template.HTMLEscapeString(strings.TrimSpace(text)), "<code>$1</code>")
	return template.HTML(strings.ReplaceAll(escaped, "\n\n", "</p><p>")) //nolint:gosec // escaped above
}
