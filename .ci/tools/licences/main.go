// Command licences reads CycloneDX documents in JSON, and prints each module with its licences. It
// fails if a module has no licence, or has one that is not allowed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// allowed are the SPDX ids of licences that permit a binary to be passed on under any terms.
var allowed = []string{
	"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-Source-Code", "ISC", "MIT", "MPL-2.0", "Unlicense",
}

// read are the licences of modules for which the documents have none, as read by a person.
var read = map[string]string{
	"github.com/tmthrgd/go-hex": "BSD-3-Clause",
}

// own is the prefix of the names of this repository's modules other than the main one.
const own = "partnerbilling/"

// document is a CycloneDX document.
type document struct {
	Components []component `json:"components"`
}

type component struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licences []licence `json:"licenses"`
	Evidence struct {
		Licences []licence `json:"licenses"`
	} `json:"evidence"`
}

type licence struct {
	License struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"license"`
}

func main() {
	var all []component
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		var d document
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "licences: %s: %v\n", file, err)
			os.Exit(1)
		}
		all = append(all, d.Components...)
	}
	if err := list(os.Stdout, all); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

// list prints each module once. It returns an error that names the modules which must not be used.
func list(out io.Writer, all []component) error {
	var refused []error
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.Name] || strings.HasPrefix(c.Name, own) {
			continue
		}
		seen[c.Name] = true
		ids := c.ids()
		fmt.Fprintf(w, "%s\t%s\t%v\n", c.Name, c.Version, ids)
		isRefused := func(id string) bool { return !slices.Contains(allowed, id) }
		if len(ids) == 0 || slices.ContainsFunc(ids, isRefused) {
			refused = append(refused, fmt.Errorf("%s has the licences %v; allowed are %v", c.Name, ids, allowed))
		}
	}
	if len(seen) == 0 {
		return fmt.Errorf("no module found")
	}
	return errors.Join(append(refused, w.Flush())...)
}

// ids returns the SPDX ids of a component's licences.
func (c component) ids() (ids []string) {
	for _, l := range append(c.Licences, c.Evidence.Licences...) {
		if id := l.License.ID; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 && read[c.Name] != "" {
		ids = []string{read[c.Name]}
	}
	return ids
}
