package api

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

func TestHeldLimit(t *testing.T) {
	t.Parallel()
	l := newHeldLimit(prometheus.NewRegistry(), "streams", 2, 3)
	a, b := models.OrganisationID(uuid.New()), models.OrganisationID(uuid.New())
	take := func(organisation models.OrganisationID) func() {
		t.Helper()
		release, err := l.acquireStream(organisation)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	refused := func(organisation models.OrganisationID, status int) {
		t.Helper()
		var e *Error
		_, err := l.acquireStream(organisation)
		if !errors.As(err, &e) || e.Status() != status || e.RetryAfter != retryHeld {
			t.Errorf("not refused with %d: %v", status, err)
		}
	}
	first, second := take(a), take(a)
	refused(a, 429)
	third := take(b)
	refused(b, 503) // the process has three
	first()
	take(b)()
	fourth := take(a)
	for _, release := range []func(){second, third, fourth} {
		release()
	}
	if l.all != 0 || len(l.held) != 0 {
		t.Errorf("%d are held: %v", l.all, l.held)
	}
}
