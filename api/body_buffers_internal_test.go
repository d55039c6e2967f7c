package api

import (
	"testing"

	"pgregory.net/rapid"
)

// Each buffer has the wanted size, and get never returns a buffer that another holder has.
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
			buffer := buffers.get(size)
			if len(buffer) != size {
				t.Fatalf("a buffer of %d bytes, want %d", len(buffer), size)
			}
			held = append(held, buffer)
			for _, i := range []int{0, size - 1} {
				buffer[i] = byte(len(held))
			}
		}
		for i, buffer := range held {
			if first, last := buffer[0], buffer[len(buffer)-1]; first != byte(i+1) || last != byte(i+1) {
				t.Fatalf("buffer %d was overwritten with %d and %d", i, first, last)
			}
		}
	})
}

// A large body counts with the whole capacity of its buffer, which the next body gets.
func TestBodyBufferServesAgain(t *testing.T) {
	t.Parallel()
	s := &Server{bodies: &bodyMemory{}}
	for _, size := range []int{smallBody + 1, 100_000, maxBatchBytes} {
		kept := false
		for range 100 { // a pool may drop a buffer
			first := &Request{server: s}
			body := first.newBody(size)
			if cap(body) != bufferSize(size) {
				t.Fatalf("a body of %d bytes has a buffer of %d, and counts %d", size, cap(body), bufferSize(size))
			}
			first.giveBackBuffer()
			again := (&Request{server: s}).newBody(size)
			if kept = &again[0] == &body[0]; kept {
				break
			}
		}
		if !kept {
			t.Errorf("no buffer of %d bytes served again", size)
		}
	}
}
