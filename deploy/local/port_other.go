//go:build !linux

package local

import (
	"errors"
	"io"
)

// holdPort checks that nothing listens on a port of 127.0.0.1. The closer is nil: these systems
// cannot hold a port.
func holdPort(number int, _ bool) (io.Closer, error) {
	if !portFree(number) {
		return nil, errors.New(address(number) + " is in use")
	}
	return nil, nil
}
