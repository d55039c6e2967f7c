package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"partnerbilling/deploy/wire"
)

// wireSet holds the wires of the chaos fleet by name. A wire is a TCP proxy between two processes
// that can disturb their connections. wireNames lists the names, such as "worker-1/redis".
type wireSet map[string]*wire.Wire

// named returns the wires with the name. "workers/redis" stands for the wires of all workers to
// Redis, and so on.
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

// each calls do for all wires that named returns, and joins the errors.
func (w wireSet) each(name string, do func(*wire.Wire) error) error {
	var errs []error
	for _, wire := range w.named(name) {
		errs = append(errs, do(wire))
	}
	return errors.Join(errs...)
}

// add starts a wire to the upstream address. The name must be in wireNames.
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

// hostOf returns the host and port of a URL; the text itself if it is not a URL.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}
