package main

import (
	"io"
	"strings"
	"testing"
)

func TestRecoverRefusesAnInvalidRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"0", "-1"} {
		err := run(t.Context(), []string{"recover", "--rate", rate}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--rate must be") {
			t.Errorf("--rate %s: error %v", rate, err)
		}
	}
}
