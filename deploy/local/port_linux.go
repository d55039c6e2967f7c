package local

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// holdPort reserves a port of 127.0.0.1 until the returned closer is closed. It binds a socket to
// the port and never listens on it. Servers set SO_REUSEADDR on their listeners; the held socket
// sets it too, so both can bind the port. If isNew is set, no other socket may have the port, not
// even the hold of another process. holdPort then sets the option only after the bind.
func holdPort(number int, isNew bool) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	allowReuse := func() error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }
	bind := func() error {
		return syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
	}
	steps := []func() error{allowReuse, bind}
	if isNew {
		steps = []func() error{bind, allowReuse}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(os.NewSyscallError("hold port", err), syscall.Close(fd))
		}
	}
	return os.NewFile(uintptr(fd), "port"), nil
}
