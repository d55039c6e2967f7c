package api

import "sync"

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

// Answered reports whether any test has provoked the code.
func Answered(code Code) bool {
	_, ok := answered.Load(code)
	return ok
}

// NewWithRoutes returns a server with another route table.
func NewWithRoutes(cfg Config, table []Route) *Server {
	return newServer(cfg.withDefaults(), table)
}
