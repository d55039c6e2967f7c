package api

import (
	"math/bits"
	"sync"
)

// bodyBuffers keeps the buffers of large bodies, so that later bodies reuse them. Allocating a
// buffer for each body would cost more CPU time than reading the body: a few such buffers start a
// garbage collection. The zero value is ready for use. A bodyBuffers is safe for concurrent use.
type bodyBuffers struct {
	kept [bits.UintSize]sync.Pool // of *[]byte; pool i has those of at least 2^i bytes
}

// get returns a buffer of size bytes. It may hold bytes of an earlier body.
func (b *bodyBuffers) get(size int) []byte {
	exponent := bits.Len(uint(size - 1)) //nolint:gosec // size is at least 1
	if kept, ok := b.kept[exponent].Get().(*[]byte); ok {
		return (*kept)[:size]
	}
	return make([]byte, size, 1<<exponent)
}

// put keeps a buffer of at least one byte. Nothing may refer to it any more.
func (b *bodyBuffers) put(buffer []byte) {
	b.kept[bits.Len(uint(cap(buffer)))-1].Put(&buffer)
}
