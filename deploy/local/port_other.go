//go:build !linux

package local

import (
	"errors"
	"io"
)

// holdPort cannot hold a port here. It checks that nothing listens on it.
func holdPort(number int, _ bool) (io.Closer, error) {
	if !portFree(number) {
		return nil, errors.New(address(number) + " is taken")
	}
	return nil, nil
}
