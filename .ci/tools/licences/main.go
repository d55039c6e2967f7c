// Command licences prints the licences of the modules that a release contains. Its arguments are
// files with CycloneDX documents in JSON. It fails if a module has no licence, or has a licence
// that is not allowed.
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

// licencesRead maps a module to its licence, for modules without a licence in the documents. A
// person has read the module's licence.
var licencesRead = map[string]string{
	"github.com/tmthrgd/go-hex": "BSD-3-Clause",
}

// own is the prefix of the names of this repository's other modules, which list leaves out.
const own = "partnerbilling/"

// document is the part of a CycloneDX document that names the modules.
type document struct {
	Components []component `json:"components"`
}

// component is a module. Its licences are in Licences or in Evidence.
type component struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licences []licence `json:"licenses"`
	Evidence struct {
		Licences []licence `json:"licenses"`
	} `json:"evidence"`
}

// licence is a licence of a component. A licence without an SPDX id does not count.
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

// list prints a line for each module: its name, version and licences. The error names the modules
// that have no licence or one that is not allowed.
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

// ids returns the SPDX ids of a component's licences, or the licence from licencesRead if there are
// none.
func (c component) ids() (ids []string) {
	for _, l := range append(c.Licences, c.Evidence.Licences...) {
		if id := l.License.ID; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 && licencesRead[c.Name] != "" {
		ids = []string{licencesRead[c.Name]}
	}
	return ids
}
