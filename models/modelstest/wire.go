package modelstest

import (
	"net/url"
	"testing"

	"partnerbilling/deploy/wire"
)

// Wire starts a TCP proxy to the server of a URL. It returns the proxy, and the URL with the
// proxy's address. The proxy ends with the test.
func Wire(t testing.TB, server string) (w *Line, through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("modelstest: wire: %v", err)
	}
	made, err := wire.New(u.Host)
	if err != nil {
		t.Fatalf("modelstest: %v", err)
	}
	t.Cleanup(made.Close)
	return &Line{Wire: made, t: t}, made.Through(server)
}

// Line is a test's proxy to a server. It can freeze connections.
type Line struct {
	*wire.Wire

	t testing.TB
}

// The numbers that identify a line's faults to wire.Wire.
const (
	frozenOpen = iota
	frozenAll
)

// FreezeOpen freezes the open connections until Release: the proxy acknowledges their data, but
// carries none.
func (l *Line) FreezeOpen() {
	l.t.Helper()
	l.check(l.Begin(frozenOpen, wire.Fault{FreezeOpen: true}))
}

// Freeze is FreezeOpen. Until Thaw, it also freezes new connections.
func (l *Line) Freeze() {
	l.t.Helper()
	l.FreezeOpen()
	l.check(l.Begin(frozenAll, wire.Fault{Freeze: true}))
}

// Thaw ends the freeze of new connections. Those that were open at the call of Freeze stay frozen
// until Release.
func (l *Line) Thaw() {
	l.t.Helper()
	l.check(l.End(frozenAll))
}

// Release ends FreezeOpen: the connections deliver the data that was held back, and close if one
// side has closed.
func (l *Line) Release() {
	l.t.Helper()
	l.check(l.End(frozenOpen))
}

func (l *Line) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("modelstest: %v", err)
	}
}
