package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"partnerbilling/deploy/wire"
)

// wireSet holds the wires of the fleet by name.
type wireSet map[string]*wire.Wire

// named returns the wires with the name. "workers/…" names those of all workers.
func (w wireSet) named(name string) []*wire.Wire {
	if rest, all := strings.CutPrefix(name, "workers/"); all {
		var found []*wire.Wire
		for _, worker := range workerNames {
			found = append(found, w[worker+"/"+rest])
		}
		return found
	}
	return []*wire.Wire{w[name]}
}

// each calls do for the wires with the name.
func (w wireSet) each(name string, do func(*wire.Wire) error) error {
	var errs []error
	for _, wire := range w.named(name) {
		errs = append(errs, do(wire))
	}
	return errors.Join(errs...)
}

func (w wireSet) add(name, upstream string) error {
	if !slices.Contains(wireNames, name) {
		return fmt.Errorf("wire %s is not in wireNames", name)
	}
	made, err := wire.New(upstream)
	if err == nil {
		w[name] = made
	}
	return err
}

func (w wireSet) close() {
	for _, wire := range w {
		wire.Close()
	}
}

// hostOf returns the host and port of a URL.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}
