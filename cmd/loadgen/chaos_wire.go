package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"partnerbilling/deploy/wire"
)

// wiring is all wires of the fleet by name.
type wiring map[string]*wire.Wire

// named returns the wires of a name; "workers/…" are those of all workers.
func (w wiring) named(name string) []*wire.Wire {
	if rest, all := strings.CutPrefix(name, "workers/"); all {
		var found []*wire.Wire
		for _, worker := range workerNames {
			found = append(found, w[worker+"/"+rest])
		}
		return found
	}
	return []*wire.Wire{w[name]}
}

// each does something to the wires of a name.
func (w wiring) each(name string, do func(*wire.Wire) error) error {
	var errs []error
	for _, one := range w.named(name) {
		errs = append(errs, do(one))
	}
	return errors.Join(errs...)
}

func (w wiring) add(name, upstream string) error {
	if !slices.Contains(wireNames, name) {
		return fmt.Errorf("wire %s is in no schedule", name)
	}
	made, err := wire.New(upstream)
	if err == nil {
		w[name] = made
	}
	return err
}

func (w wiring) close() {
	for _, one := range w {
		one.Close()
	}
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}
