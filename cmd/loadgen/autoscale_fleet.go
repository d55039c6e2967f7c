package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// workerFleet is a set of `svc worker` processes that an autoscaler resizes, like a Deployment of
// Kubernetes. It is safe for concurrent use, but only one goroutine may call resize.
type workerFleet struct {
	launch func() (*process, string, error) // starts a worker; the string is its base URL
	http   *http.Client

	mu      sync.Mutex
	running []fleetWorker // the oldest first
	failed  error         // the errors of terminated workers
	ending  sync.WaitGroup
}

// fleetWorker is a worker with the base URL at which it serves its metrics.
type fleetWorker struct {
	*process
	url string
}

// scrapeTimeout bounds the scrape of a worker, as Prometheus does.
const scrapeTimeout = 10 * time.Second

func newWorkerFleet(launch func() (*process, string, error)) *workerFleet {
	return &workerFleet{launch: launch, http: &http.Client{Timeout: scrapeTimeout}}
}

// resize starts workers, or terminates the youngest ones, so that n run. It waits until started
// workers listen, but not until terminated ones have ended. It returns an error if a worker has
// ended by itself, or if an earlier one did not terminate gracefully.
func (f *workerFleet) resize(n int) error {
	for f.size() < n {
		p, url, err := f.launch()
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.running = append(f.running, fleetWorker{p, url})
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.running {
		if err := checkRunning(w.process); err != nil {
			return err
		}
	}
	for _, w := range f.running[n:] {
		f.ending.Go(func() {
			err := w.terminate()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failed = errors.Join(f.failed, err)
		})
	}
	f.running = f.running[:n]
	return f.failed
}

// size returns the number of running workers, without those that are being terminated.
func (f *workerFleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running)
}

// end terminates all workers and waits for their end. Its error includes those of workers that
// resize has terminated.
func (f *workerFleet) end() error {
	f.ending.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*process, len(f.running))
	for i, w := range f.running {
		all[i] = w.process
	}
	return errors.Join(f.failed, terminateAll(all...))
}

// logs returns the last part of each running worker's log, as an error.
func (f *workerFleet) logs() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, w := range f.running {
		errs = append(errs, w.stderrTail())
	}
	return errors.Join(errs...)
}

// scrape returns the metric samples of all running workers. It skips workers that do not answer.
func (f *workerFleet) scrape(ctx context.Context) (all []sample) {
	f.mu.Lock()
	workers := append([]fleetWorker(nil), f.running...)
	f.mu.Unlock()
	scraped := make([][]sample, len(workers))
	var group sync.WaitGroup
	for i, w := range workers {
		group.Go(func() { scraped[i], _ = f.scrapeWorker(ctx, w.url) })
	}
	group.Wait()
	for _, samples := range scraped {
		all = append(all, samples...)
	}
	return all
}

func (f *workerFleet) scrapeWorker(ctx context.Context, url string) ([]sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, err
	}
	return readSamples(bytes.NewReader(text))
}
