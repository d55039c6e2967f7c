package api

import (
	"sync"

	"github.com/google/uuid"
)

// answered contains the codes of all errors that servers of this test process have answered with.
var answered sync.Map

func init() {
	onFailure = func(e *Error) {
		for _, f := range e.Faults {
			answered.Store(f.Code, true)
		}
	}
}

// MaxExports is the largest number of tables that are streamed at once.
const MaxExports = maxExports

// MaxOrganisationStreams is the largest number of streams of an organisation.
const MaxOrganisationStreams = maxOrganisationStreams

// LastCaller returns the organisation or the client that last asked for a slot, or the zero UUID
// for an unknown one.
func (s *Server) LastCaller() uuid.UUID {
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	return s.admission.recent[0].caller.id
}

// Answered reports whether any test has provoked the code.
func Answered(code Code) bool {
	_, ok := answered.Load(code)
	return ok
}

// NewWithRoutes returns a server with another route table.
func NewWithRoutes(cfg Config, table []Route) *Server {
	return newServer(cfg.withDefaults(), table)
}
