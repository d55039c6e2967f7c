//go:build !linux

package local

import (
	"errors"
	"io"
)

// holdPort checks that nothing listens on the port. These systems cannot hold a port.
func holdPort(number int, _ bool) (io.Closer, error) {
	if !portFree(number) {
		return nil, errors.New(address(number) + " is in use")
	}
	return nil, nil
}
