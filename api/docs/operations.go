package docs

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// document is the part of the OpenAPI document that the index page shows.
type document struct {
	Info Info
	Tags []struct{ Name, Description string }
	// Paths maps each path to its methods and their operations. Other keys of a path are ignored.
	Paths map[string]map[string]json.RawMessage
}

// operation is a line of the index page.
type operation struct {
	Method  string `json:"-"`
	Path    string `json:"-"`
	Tags    []string
	Summary string
}

// Reference returns the URL path and fragment of the operation in the API reference.
func (o operation) Reference() string {
	tag := strings.ReplaceAll(o.Tags[0], " ", "-")
	return Path + "/reference#tag/" + tag + "/" + o.Method + o.Path
}

// section is the operations of one tag.
type section struct {
	Name       string
	Operations []operation
}

// sections groups the operations by their first tag. The sections have the order of the document's
// tags; in each, operations are sorted by path and method. Operations of an unlisted tag are left
// out.
func (d *document) sections() []section {
	byTag := make(map[string][]operation)
	for path, item := range d.Paths {
		for method, raw := range item {
			o := operation{Method: strings.ToUpper(method), Path: path}
			if json.Unmarshal(raw, &o) != nil || len(o.Tags) == 0 { // a key that is not a method
				continue
			}
			byTag[o.Tags[0]] = append(byTag[o.Tags[0]], o)
		}
	}
	var sections []section
	for _, tag := range d.Tags {
		operations := byTag[tag.Name]
		slices.SortFunc(operations, func(a, b operation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
		})
		sections = append(sections, section{tag.Name, operations})
	}
	return sections
}
