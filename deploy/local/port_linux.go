package local

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// holdPort binds a socket to the port and never listens with it. SO_REUSEADDR, which servers set on their
// listeners too, lets these share the port with it. A new port is bound before that option is set: the bind then
// fails if any other socket has the port, another process's hold included.
func holdPort(number int, isNew bool) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	share := func() error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }
	bind := func() error {
		return syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
	}
	steps := []func() error{share, bind}
	if isNew {
		steps = []func() error{bind, share}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(os.NewSyscallError("hold port", err), syscall.Close(fd))
		}
	}
	return os.NewFile(uintptr(fd), "port"), nil
}
