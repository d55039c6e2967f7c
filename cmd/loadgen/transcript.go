package main

import (
	"bytes"
	"strings"
	"sync"
)

// transcript keeps the end of the output of a process, and the first lines that report a bug. It is
// safe for concurrent use.
type transcript struct {
	mu    sync.Mutex
	tail  []byte
	fatal []string // the first 10 lines with one of fatalMarkers
}

// transcriptSize is the minimum number of bytes that a transcript keeps of a longer output.
const transcriptSize = 1 << 20

// fatalMarkers are texts that no process may print under any fault.
var fatalMarkers = []string{"panic:", "fatal error:", "DATA RACE", "concurrent map"}

// Write implements io.Writer. It misses a marker that is split between two calls.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(b) {
		for _, marker := range fatalMarkers {
			if len(t.fatal) < 10 && bytes.Contains(line, []byte(marker)) {
				t.fatal = append(t.fatal, strings.TrimSpace(string(line)))
			}
		}
	}
	t.tail = append(t.tail, b...)
	if len(t.tail) > 2*transcriptSize {
		t.tail = append([]byte(nil), t.tail[len(t.tail)-transcriptSize:]...)
	}
	return len(b), nil
}

// read returns the end of the output, and the lines that report a bug.
func (t *transcript) read() (tail []byte, fatal []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.tail), t.fatal
}
