package rail_test

import "log/slog"

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)
