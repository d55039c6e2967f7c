package local

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
)

// host is where the servers listen.
const host = "127.0.0.1"

// The range for new ports, below the one from which systems take ports for outgoing connections: such a
// connection could sit on the port of a server that is stopped for a moment.
const (
	firstPort = 20000
	lastPort  = 31999
)

// Port is a TCP port of 127.0.0.1 that is reserved until Close, for listeners that come and go. While nothing
// listens on it, connections are refused, and neither an outgoing connection nor a listener that asks for any
// free port gets it. Every process of the machine can listen on it.
//
// Linux holds the port with a socket that never listens. Other systems have no such socket: there the port
// lies outside of the range for outgoing connections.
type Port struct {
	number int
	hold   io.Closer // nil on systems that cannot hold a port
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

// reserveAgain reserves the port of an earlier process, on which connections of that time may still linger.
func reserveAgain(number int) (*Port, error) {
	if !portFree(number) {
		return nil, errors.New(address(number) + " is taken")
	}
	hold, err := holdPort(number, false)
	if err != nil {
		return nil, err
	}
	return &Port{number, hold}, nil
}

// Number returns the port's number.
func (p *Port) Number() int { return p.number }

// Address returns the port's address, 127.0.0.1:number.
func (p *Port) Address() string { return address(p.number) }

// Close ends the reservation. A listener on the port lives on.
func (p *Port) Close() error {
	if p.hold == nil {
		return nil
	}
	return p.hold.Close()
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
