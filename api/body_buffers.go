package api

import (
	"math/bits"
	"sync"
)

// bodyBuffers keeps the buffers of large bodies for later ones. A new buffer for each would cost
// more CPU time than its body: a few of them start a garbage collection. Two collections after its
// last use, a buffer is freed. The zero value is ready for use. A bodyBuffers is safe for
// concurrent use.
type bodyBuffers struct {
	kept [bits.UintSize]sync.Pool // of *[]byte; pool i has those of 2^i bytes
}

// get returns a buffer of size bytes. It may hold bytes of an earlier body.
func (b *bodyBuffers) get(size int) []byte {
	if kept, ok := b.kept[exponent(size)].Get().(*[]byte); ok {
		return (*kept)[:size]
	}
	return make([]byte, size, 1<<exponent(size))
}

// put keeps a buffer that get has returned. Nothing may refer to it any more.
func (b *bodyBuffers) put(buffer []byte) { b.kept[exponent(cap(buffer))].Put(&buffer) }

// exponent returns the least i for which 2^i is at least size, which must be positive.
func exponent(size int) int { return bits.Len(uint(size - 1)) }

// bufferSize returns the memory in bytes of a body of size bytes: the capacity of its buffer.
func bufferSize(size int) int {
	if size <= smallBody {
		return size
	}
	return 1 << exponent(size)
}

// newBody returns a buffer for the request's body of size bytes. Another request may get the buffer
// of a large body after giveBackBuffer.
func (r *Request) newBody(size int) []byte {
	if size <= smallBody {
		return make([]byte, size)
	}
	r.buffer = r.server.bodies.buffers.get(size)
	return r.buffer
}

// giveBackBuffer ends the use of the buffer of a large body. Nothing may refer to it any more.
func (r *Request) giveBackBuffer() {
	if r.buffer != nil {
		r.server.bodies.buffers.put(r.buffer)
		r.buffer, r.raw = nil, nil
	}
}
