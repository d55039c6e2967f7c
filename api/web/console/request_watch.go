package console

import (
	"sync"

	"partnerbilling/models"
)

// watches tell streams of new requests. An organisation without a stream costs one look into a map
// for each request.
type watches struct {
	mu   sync.Mutex
	open map[models.OrganisationID]*watch
}

// watch counts the streams of an organisation, and signals new requests to them.
type watch struct {
	streams int
	version uint64
	changed chan struct{} // closed and replaced when version rises
}

// RequestWatch tells a stream of new requests of an organisation. It is safe for concurrent use.
type RequestWatch struct {
	all          *watches
	organisation models.OrganisationID
	of           *watch
}

// Watch begins to watch the requests of an organisation. Close must be called once.
func (l *RequestLog) Watch(organisation models.OrganisationID) *RequestWatch {
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
	return &RequestWatch{s, organisation, w}
}

// Version returns a number above 0 that rises with each new request, and a channel that is closed
// when it does.
func (w *RequestWatch) Version() (version uint64, changed <-chan struct{}) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	return w.of.version, w.of.changed
}

// Close ends the watch.
func (w *RequestWatch) Close() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if w.of.streams--; w.of.streams == 0 {
		delete(w.all.open, w.organisation)
	}
}

// tell wakes the streams of an organisation.
func (s *watches) tell(organisation models.OrganisationID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.open[organisation]; w != nil {
		w.version++
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
