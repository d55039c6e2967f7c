package api

import (
	"testing"

	"pgregory.net/rapid"
)

// Each buffer has the wanted size, whatever buffers are kept, and is of no other holder meanwhile.
func TestBodyBuffersAreApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var buffers bodyBuffers
		var held [][]byte
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "put") {
				buffers.put(held[len(held)-1])
				held = held[:len(held)-1]
				continue
			}
			size := rapid.IntRange(1, maxBatchBytes).Draw(t, "size")
			if rapid.Bool().Draw(t, "grown") { // a body of unknown length, which get has not returned
				buffers.put(make([]byte, size))
				continue
			}
			buffer := buffers.get(size)
			if len(buffer) != size {
				t.Fatalf("a buffer of %d bytes, want %d", len(buffer), size)
			}
			mark := byte(len(held) + 1)
			for i := range buffer {
				buffer[i] = mark
			}
			held = append(held, buffer)
		}
		for i, buffer := range held {
			for _, b := range []byte{buffer[0], buffer[len(buffer)-1]} {
				if b != byte(i+1) {
					t.Fatalf("buffer %d was overwritten by %d", i, b)
				}
			}
		}
	})
}
