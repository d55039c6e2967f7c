package rail_test

import (
	"io"
	"log"
	"log/slog"
)

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

func newLogger() *log.Logger { return log.New(io.Discard, "", 0) }
