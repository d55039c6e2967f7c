package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// wire is a connection between two parts of the fleet that can be broken. What breaks it may overlap.
//
// Every change ends the connections that are open, and puts a new proxy in the place of the old one: to rewire living
// connections, a proxy would have to wait for both their ends, of which one may be stopped.
type wire struct {
	name, listen, upstream string
	server                 *toxiproxy.ApiServer

	mu      sync.Mutex
	proxy   *toxiproxy.Proxy // nil while it is cut
	toxics  map[int][]toxic  // by fault
	cuts    int
	renewed int
}

// toxic is what toxiproxy does to a connection, in its own words.
type toxic struct {
	Name       string           `json:"name"`
	Type       string           `json:"type"`
	Stream     string           `json:"stream"`
	Attributes map[string]int64 `json:"attributes"`
}

// bothWays makes a toxic for each direction.
func bothWays(number int, kind string, attributes map[string]int64) []toxic {
	var both []toxic
	for _, stream := range []string{"upstream", "downstream"} {
		both = append(both, toxic{Name: fmt.Sprint(stream, number), Type: kind, Stream: stream, Attributes: attributes})
	}
	return both
}

// newWire starts a wire to an address, on a port of its own.
func newWire(name, upstream string) (*wire, error) {
	w := &wire{
		name: name, listen: "127.0.0.1:0", upstream: upstream, toxics: map[int][]toxic{},
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	w.listen = w.proxy.Listen
	return w, nil
}

// cut refuses connections until it is called back as often as it was called.
func (w *wire) cut() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts++
	w.stop()
	return nil
}

func (w *wire) uncut() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts--
	return w.renew()
}

// poison lets a fault's toxics work on the connections from now on.
func (w *wire) poison(number int, toxics []toxic) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.toxics[number] = toxics
	return w.renew()
}

func (w *wire) cure(number int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.toxics, number)
	return w.renew()
}

func (w *wire) renew() error {
	w.stop()
	if w.cuts > 0 {
		return nil
	}
	return w.start()
}

func (w *wire) start() error {
	w.renewed++
	proxy := toxiproxy.NewProxy(w.server, fmt.Sprint(w.name, w.renewed), w.listen, w.upstream)
	for _, toxics := range w.toxics {
		for _, t := range toxics {
			text, err := json.Marshal(t)
			if err != nil {
				return err
			}
			if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
				return fmt.Errorf("wire %s: %w", w.name, err)
			}
		}
	}
	if err := proxy.Start(); err != nil {
		return fmt.Errorf("wire %s: %w", w.name, err)
	}
	w.proxy = proxy
	return nil
}

func (w *wire) stop() {
	if w.proxy != nil {
		w.proxy.Stop()
		w.proxy = nil
	}
}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
}

// through is a URL with the wire's address instead of the server's own.
func (w *wire) through(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Host = w.listen
	return u.String()
}

// freePort is an address that nobody listens on now.
func freePort(ctx context.Context) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// wiring is all wires by name.
type wiring map[string]*wire

// named are the wires of a name; "workers/…" are those of all workers.
func (w wiring) named(name string) []*wire {
	if rest, all := strings.CutPrefix(name, "workers/"); all {
		var found []*wire
		for _, worker := range workerNames {
			found = append(found, w[worker+"/"+rest])
		}
		return found
	}
	return []*wire{w[name]}
}

// each does something to the wires of a name.
func (w wiring) each(name string, do func(*wire) error) error {
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
	made, err := newWire(name, upstream)
	if err == nil {
		w[name] = made
	}
	return err
}

func (w wiring) close() {
	for _, one := range w {
		one.close()
	}
}
