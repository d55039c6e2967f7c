package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
)

func TestDisconnectEndsWaiting(t *testing.T) {
	g := newTestServer(t, nil)
	ctx, hangUp := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := g.Try(ctx, "GET", "/wait", nil)
		gone <- err
	}()
	<-g.waiting
	hangUp()
	if err := <-gone; err == nil {
		t.Error("an answer without a wait")
	}
	<-g.waiting // the handler has returned
}

func TestWaitingDoesNotEatTheNextRequest(t *testing.T) {
	g := newTestServer(t, nil)
	connection, err := net.Dial("tcp", strings.TrimPrefix(g.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-g.waiting
	if _, err := io.WriteString(connection, "GET /fail/not HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	shut := make(chan error, 1)
	go func() { shut <- g.server.Shutdown(ctx) }() // ends the held request
	<-g.waiting
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", response, err)
	}
	if err := <-shut; err != nil {
		t.Error(err)
	}
}

func TestShutdownCancelsSlowRequests(t *testing.T) {
	g := newTestServer(t, nil)
	answered := make(chan int, 1)
	go func() {
		a, err := g.Try(context.Background(), "GET", "/wait?deaf", nil)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		answered <- a.Status
	}()
	<-g.waiting
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if status := <-answered; status != 503 {
		t.Errorf("status %d", status)
	}
	<-g.waiting
}

func TestRunEndsWithItsContext(t *testing.T) {
	g := newTestServer(t, nil)
	server := api.NewWithRoutes(api.Config{Authenticator: tokens, Sites: tokens, Log: slog.New(slog.DiscardHandler)},
		g.routes())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Listen(ctx, "127.0.0.1:0") }()
	cancel()
	if err := <-ended; err != nil && !strings.Contains(err.Error(), "canceled") {
		t.Error(err)
	}
	if err := server.Listen(context.Background(), "127.0.0.1:bad"); err == nil {
		t.Error("listened on nonsense")
	}
}

// A connection that is idle when the server is asked to end stays open for the next request. Its
// answer closes it, and then the server ends.
func TestDrainLetsClientsCloseConnections(t *testing.T) {
	g := newTestServer(t, func(c *api.Config) { c.DrainTime = time.Minute })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.server.Run(ctx, ln) }()
	connection, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(connection)
	get := func() (closes bool) {
		t.Helper()
		if _, err := io.WriteString(connection, "GET /fail/not HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response.Close || err != nil
	}
	if get() {
		t.Error("the first answer closes its connection")
	}
	end()
	apitest.AwaitNoListener(t, "http://"+ln.Addr().String())
	if !get() {
		t.Error("the answer of an ending server does not close its connection")
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the server has not ended, although all connections are closed")
	}
}
