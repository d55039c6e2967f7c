package main

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// transcript keeps the end of the output of a process, and the first lines that report a bug. It is
// safe for concurrent use.
type transcript struct {
	mu      sync.Mutex
	tail    []byte
	checked int      // length of the beginning of tail whose lines are checked for fatalMarkers
	fatal   []string // the first maxFatal lines with one of fatalMarkers
}

const (
	// transcriptSize is the minimum number of bytes that a transcript keeps of a longer output.
	transcriptSize = 1 << 20
	// maxFatal is the maximum number of lines that a transcript keeps as reports of bugs.
	maxFatal = 10
)

// fatalMarkers are texts that no process may print under any fault.
var fatalMarkers = []string{"panic:", "fatal error:", "DATA RACE", "concurrent map"}

// Write implements io.Writer.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = append(t.tail, b...)
	if end := bytes.LastIndexByte(b, '\n') + 1; end > 0 {
		end += len(t.tail) - len(b)
		t.fatal = append(t.fatal, fatalLines(t.tail[t.checked:end])...)
		t.fatal, t.checked = t.fatal[:min(len(t.fatal), maxFatal)], end
	}
	if excess := len(t.tail) - transcriptSize; excess > transcriptSize {
		t.tail, t.checked = bytes.Clone(t.tail[excess:]), max(0, t.checked-excess)
	}
	return len(b), nil
}

// fatalLines returns the lines of a text that contain one of fatalMarkers.
func fatalLines(text []byte) (fatal []string) {
	for line := range bytes.Lines(text) {
		isIn := func(marker string) bool { return bytes.Contains(line, []byte(marker)) }
		if slices.ContainsFunc(fatalMarkers, isIn) {
			fatal = append(fatal, strings.TrimSpace(string(line)))
		}
	}
	return fatal
}

// read returns the end of the output, and the lines that report a bug. The last line may be
// incomplete.
func (t *transcript) read() (tail []byte, fatal []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.tail), slices.Concat(t.fatal, fatalLines(t.tail[t.checked:]))
}
