package local

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
)

// host is the address that the servers listen on.
const host = "127.0.0.1"

// The range of new ports. It is below the ephemeral range of every system. Otherwise an outgoing
// connection could occupy the port of a server that is stopped for a moment.
const (
	firstPort = 20000
	lastPort  = 31999
)

// Port is a TCP port of 127.0.0.1 that is reserved until Close. Listeners may open and close it
// repeatedly. While there is no listener, connections to the port are refused. The system gives a
// reserved port neither to an outgoing connection nor to a listener on port 0. It does not keep
// another process from listening on the port explicitly.
//
// Linux holds the port with a bound socket that never listens. Other systems offer no such socket,
// and rely on the port being outside of the ephemeral range.
type Port struct {
	number int
	hold   io.Closer // nil where the system cannot hold a port
}

// ReservePort reserves a free port.
func ReservePort() (*Port, error) {
	for range 1000 {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		if hold, err := holdPort(number, true); err == nil {
			return &Port{number, hold}, nil
		}
	}
	return nil, errors.New("no free port on " + host)
}

// reserveSaved reserves a port that an earlier process has used. Connections of that process may
// still linger on the port.
func reserveSaved(number int) (*Port, error) {
	if !portFree(number) {
		return nil, errors.New(address(number) + " is in use")
	}
	hold, err := holdPort(number, false)
	if err != nil {
		return nil, err
	}
	return &Port{number, hold}, nil
}

// Number returns the port number.
func (p *Port) Number() int { return p.number }

// Address returns the address "127.0.0.1:<number>".
func (p *Port) Address() string { return address(p.number) }

// Close ends the reservation. A listener on the port is not affected.
func (p *Port) Close() error {
	if p.hold == nil {
		return nil
	}
	return p.hold.Close()
}

// portFree reports whether a listener can open the port now.
func portFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
