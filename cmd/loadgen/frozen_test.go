package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"partnerbilling/deploy/wire"
)

// A measurement that ends early leaves no frozen connections behind.
func TestFrozenThawsAfterAnError(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	w, err := wire.New(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &frozen{thaw: time.Hour}
	if err := f.freezeAll(ctx, w, newFrozenSeries("server")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c := newLoadClient(1)
	c.http.ReadTimeout = 10 * time.Second
	if err := c.do(&call{url: w.Through(server.URL), want: http.StatusNotFound}); err != nil {
		t.Errorf("after the error: %v", err)
	}
}
