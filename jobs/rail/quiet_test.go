package rail_test

import "log/slog"

// quiet discards what is logged.
var quiet = slog.New(slog.DiscardHandler)
