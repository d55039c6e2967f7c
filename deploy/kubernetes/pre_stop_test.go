package kubernetes

import (
	"testing"
	"time"
)

func TestPreStop(t *testing.T) {
	t.Parallel()
	if got, err := PreStop(); err != nil || got != 5*time.Second {
		t.Errorf("%s, %v", got, err)
	}
}
