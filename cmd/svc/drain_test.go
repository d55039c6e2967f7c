package main

import (
	"io"
	"net/http"
	"syscall"
	"testing"

	"partnerbilling/api/apitest"
	"partnerbilling/models/modelstest"
)

// A client with an idle connection to an API that gets SIGTERM can still send a request on it.
func TestStoppingAPIAnswersIdleConnections(t *testing.T) {
	t.Parallel()
	f := newFleet(t, modelstest.DSN(t))
	f.startAPI()
	caller := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: awaitTimeout}
	get := func() *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.apiURL+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := caller.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	if get().Close {
		t.Error("the first answer closes its connection")
	}
	if err := f.apiProcess.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	apitest.AwaitNoListener(t, f.apiURL)
	if !get().Close {
		t.Error("the answer of a stopping API does not close its connection")
	}
	if code := f.apiProcess.wait(awaitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
