package modelstest

import (
	"net/url"
	"testing"

	"partnerbilling/deploy/wire"
)

// Wire starts a proxy to the server of a URL, and returns it with the URL that leads through it.
// The proxy ends with the test.
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

// The numbers of a line's faults.
const (
	frozenOpen = iota
	frozenAll
)

// FreezeOpen freezes the open connections until Release: they acknowledge data, and no answer
// arrives.
func (l *Line) FreezeOpen() {
	l.t.Helper()
	l.check(l.Begin(frozenOpen, wire.Fault{FreezeOpen: true}))
}

// Freeze is FreezeOpen, and freezes new connections as well until Thaw.
func (l *Line) Freeze() {
	l.t.Helper()
	l.FreezeOpen()
	l.check(l.Begin(frozenAll, wire.Fault{Freeze: true}))
}

// Thaw lets new connections work. Those that were open at the freeze stay frozen.
func (l *Line) Thaw() {
	l.t.Helper()
	l.check(l.End(frozenAll))
}

// Release ends FreezeOpen: connections deliver the data that was held back, or their end.
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
