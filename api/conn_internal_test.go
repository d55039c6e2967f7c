package api

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// flood is a listener on which a connection always waits.
type flood struct{ net.Listener }

func (flood) Accept() (net.Conn, error) {
	return &clientEnd{address: "192.0.2.1", closed: new([]string)}, nil
}

// A flood of connections is accepted at the rate of the listener, after a first burst.
func TestListenerPacesAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const measured = 2 * time.Second
		want := acceptBurst + acceptRate*runtime.GOMAXPROCS(0)*int(measured/time.Second)
		l := listener{flood{}, newTestTable(minConnections, 0), newAcceptPace()}
		began, accepted := time.Now(), 0
		for ; time.Since(began) < measured && accepted <= want+1; accepted++ {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		if accepted < want-1 || accepted > want+1 {
			t.Errorf("accepted %d connections in %s, want about %d", accepted, measured, want)
		}
	})
}
