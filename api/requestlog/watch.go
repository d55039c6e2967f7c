package requestlog

import (
	"sync"

	"partnerbilling/models"
)

// watches notifies event streams about new requests. For an organisation without a stream, a
// request costs one map lookup. The zero value is ready for use.
type watches struct {
	mu   sync.Mutex
	open map[models.OrganisationID]*watch
}

// watch counts the open streams of an organisation, and signals new requests to them. The mutex of
// watches guards it.
type watch struct {
	streams int
	version uint64
	changed chan struct{} // closed and replaced when version rises
}

// Watch notifies one event stream about new requests of an organisation. It is safe for concurrent
// use.
type Watch struct {
	watches      *watches
	organisation models.OrganisationID
	watch        *watch
}

// Watch begins to watch the requests of an organisation. The caller must call Close once.
func (l *Log) Watch(organisation models.OrganisationID) *Watch {
	s := &l.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.open[organisation]
	if w == nil {
		if s.open == nil {
			s.open = map[models.OrganisationID]*watch{}
		}
		w = &watch{version: 1, changed: make(chan struct{})}
		s.open[organisation] = w
	}
	w.streams++
	return &Watch{s, organisation, w}
}

// Version returns a number above 0 that rises with each new request, and a channel that is closed
// when it does.
func (w *Watch) Version() (version uint64, changed <-chan struct{}) {
	w.watches.mu.Lock()
	defer w.watches.mu.Unlock()
	return w.watch.version, w.watch.changed
}

// Close ends the watch.
func (w *Watch) Close() {
	w.watches.mu.Lock()
	defer w.watches.mu.Unlock()
	if w.watch.streams--; w.watch.streams == 0 {
		delete(w.watches.open, w.organisation)
	}
}

// notify wakes the streams of an organisation.
func (s *watches) notify(organisation models.OrganisationID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.open[organisation]; w != nil {
		w.version++
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
