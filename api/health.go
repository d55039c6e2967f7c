package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// ReadinessCheck is something that the service depends on.
type ReadinessCheck struct {
	Name     string // "postgres"
	Required bool   // without it the service is not ready
	Check    func(context.Context) error
}

// How long a readiness check may take. One that is not required must not make whoever asks give up on the service.
const (
	checkTimeout         = 2 * time.Second
	optionalCheckTimeout = 40 * time.Millisecond
)

// liveness is the data of /livez.
type liveness struct {
	Status string `json:"status"`
}

// readiness is the data of /readyz.
type readiness struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

func live(_ context.Context, r *Request) error {
	return r.JSON(http.StatusOK, liveness{Status: "live"})
}

// readyHandler runs all checks at once. What a check says goes to the log, not to the answer.
func readyHandler(cfg Config) Handler {
	return func(ctx context.Context, r *Request) error {
		answer := readiness{Status: "ready", Checks: make(map[string]string, len(cfg.Checks))}
		failed := &Error{RetryAfter: retryUnavailable}
		for i, err := range runChecks(ctx, cfg.Checks) {
			check := cfg.Checks[i]
			answer.Checks[check.Name] = "ok"
			if err == nil {
				continue
			}
			answer.Checks[check.Name] = "unavailable"
			cfg.Log.WarnContext(ctx, "not ready", "check", check.Name, "err", err)
			if check.Required {
				failed.And(Fault{Code: Unavailable, Target: check.Name})
				failed.Cause = err
			}
		}
		if len(failed.Faults) > 0 {
			return failed
		}
		return r.JSON(http.StatusOK, answer)
	}
}

func runChecks(ctx context.Context, checks []ReadinessCheck) []error {
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		timeout := optionalCheckTimeout
		if c.Required {
			timeout = checkTimeout
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			errs[i] = c.Check(ctx)
		})
	}
	wg.Wait()
	return errs
}
