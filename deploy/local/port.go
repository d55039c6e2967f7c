package local

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// host is where the servers listen.
const host = "127.0.0.1"

// The range for new ports, below the one from which systems take ports for outgoing
// connections: such a connection could sit on the port of a server that is stopped for a moment.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePort finds a port on which nobody listens.
func freePort() (int, error) {
	for range 1000 {
		if port := firstPort + rand.IntN(lastPort-firstPort+1); portFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port on " + host)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
