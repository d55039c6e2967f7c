package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"partnerbilling/deploy/kubernetes"
)

// soakFleet is an haFleet for a soak run, with several APIs and workers. restart replaces them as
// Kubernetes does. The replication is synchronous, and both servers of the pair are durable.
type soakFleet struct {
	*haFleet
	recorder *soakRecorder // the transport of the partners' programs
	random   *rand.Rand
	preStop  time.Duration // from the decision to end an API until its SIGTERM, as deployed
	workers  []*soakProcess
	ending   *soakProcess // the API that is being replaced; may be nil

	mu     sync.Mutex
	apis   []*soakProcess
	routed []*soakProcess // APIs that new connections can reach
	dialed int            // number of connections so far
}

// soakProcess is an API or a worker of the fleet.
type soakProcess struct {
	*process
	command string // of svc
	base    string // URL of the process
}

// soakProcesses is the number of APIs, and of workers.
const soakProcesses = 2

// newSoakFleet returns a fleet that is not open yet.
func newSoakFleet(svc string, seed uint64) *soakFleet {
	f := &soakFleet{
		haFleet: &haFleet{
			svc: svc, plan: haPlan{Seed: seed}, durable: true, losses: &lossHistory{}, receiver: newHAReceiver(),
		},
		random: rand.New(rand.NewPCG(seed, 1<<32)), // repeatable on purpose
	}
	f.recorder = newSoakRecorder(&http.Transport{
		DialContext: f.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
	})
	f.transport = f.recorder
	return f
}

// open starts the servers, the gateway, the APIs and the workers, and creates the partners.
func (f *soakFleet) open(ctx context.Context) (err error) {
	f.prepare()
	if f.preStop, err = kubernetes.PreStop(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{f.openServers, f.seed} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	f.startGateway()
	for range soakProcesses {
		api, err := f.start(ctx, "api")
		if err != nil {
			return err
		}
		f.apis = append(f.apis, api)
		worker, err := f.start(ctx, "worker")
		if err != nil {
			return err
		}
		f.workers = append(f.workers, worker)
	}
	f.route(f.apis...)
	return f.pair.Synchronous(ctx)
}

// start starts a process that runs a command of svc, and waits until it is ready.
func (f *soakFleet) start(ctx context.Context, command string) (*soakProcess, error) {
	env := f.apiEnv("127.0.0.1:0")
	p, base, err := listening(launch("svc", f.svc, env, command))
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, base); err != nil {
		return nil, errors.Join(err, p.kill(), p.stderrTail())
	}
	return &soakProcess{p, command, base}, nil
}

// route makes new connections reach these APIs, and no others.
func (f *soakFleet) route(apis ...*soakProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routed = slices.Clone(apis)
}

// dial connects to one of the routed APIs in rotation, whatever the address, as a Service of
// Kubernetes does. The connection stays with that API.
func (f *soakFleet) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed++
	api := f.routed[f.dialed%len(f.routed)]
	f.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(api.base, "http://"))
}

// restart replaces every API and every worker, one at a time. The new process is ready before the
// old one is asked to end.
func (f *soakFleet) restart(ctx context.Context) error {
	for i, old := range f.apis {
		api, err := f.start(ctx, old.command)
		if err != nil {
			return fmt.Errorf("replace an API: %w", err)
		}
		f.apis[i], f.ending = api, old
		f.route(append(slices.Clone(f.apis), old)...)
		// The old API still gets new connections until all routers know that the API is about to
		// end.
		known := between(f.random, f.preStop/5, f.preStop*4/5)
		if err := wait(ctx, known); err != nil {
			return err
		}
		f.route(f.apis...)
		if err := wait(ctx, f.preStop-known); err != nil {
			return err
		}
		f.endProcess(old)
		f.ending = nil
	}
	for i, old := range f.workers {
		worker, err := f.start(ctx, old.command)
		if err != nil {
			return fmt.Errorf("replace a worker: %w", err)
		}
		f.workers[i] = worker
		f.endProcess(old)
	}
	return nil
}

// endProcess asks a process to end, and waits for that. If the process does not end gracefully,
// that is a breach.
func (f *soakFleet) endProcess(p *soakProcess) {
	if err := p.terminate(); err != nil {
		f.recorder.breach("a process did not end gracefully", "%v", err)
	}
	f.checkLog(p)
}

// checkLog records a breach if the log of a process reports a bug, such as a panic.
func (f *soakFleet) checkLog(p *soakProcess) {
	if _, fatal := p.stderr.read(); len(fatal) > 0 {
		f.recorder.breach("a process reported a bug", "%s: %s: %v", p.name, fatal, p.stderrTail())
	}
}

// awaitAPIs waits until every API is ready.
func (f *soakFleet) awaitAPIs(ctx context.Context) error {
	for _, api := range f.apis {
		if err := awaitReady(ctx, api.base); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all APIs and workers gracefully.
func (f *soakFleet) stop() {
	for _, p := range slices.Concat(f.apis, f.workers) {
		f.endProcess(p)
	}
	f.apis, f.workers = nil, nil
}

// close kills the processes that run, and stops the servers.
func (f *soakFleet) close() error {
	var errs []error
	running := slices.Concat(f.apis, f.workers)
	if f.ending != nil {
		running = append(running, f.ending)
	}
	for _, p := range running {
		errs = append(errs, p.kill())
	}
	return errors.Join(append(errs, f.haFleet.close())...)
}
