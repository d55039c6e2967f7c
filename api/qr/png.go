package qr

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
)

// A PNG of a code is written directly: two colours, one bit a pixel, and each line but the first of a module is "as the one
// above" (filter 2), so that next to nothing is left to compress. It costs a tenth of what the way over image/png does.

const (
	signature  = "\x89PNG\r\n\x1a\n"
	palette    = "\xff\xff\xff\x00\x00\x00" // 0 is white, 1 is black
	filterNone = 0
	filterUp   = 2
)

var compressors = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	if err != nil {
		panic(err) // only for an unknown level
	}
	return w
}}

func encodePNG(m modules) ([]byte, error) {
	total := len(m) + 2*quietZone
	scale := (minSize + total - 1) / total
	size := total * scale
	data, err := compress(scanlines(m, size, scale))
	if err != nil {
		return nil, err
	}
	header := binary.BigEndian.AppendUint32(nil, uint32(size))         //nolint:gosec // a few hundred
	header = binary.BigEndian.AppendUint32(header, uint32(size))       //nolint:gosec // a few hundred
	header = append(header, 1 /*bit a pixel*/, 3 /*palette*/, 0, 0, 0) // the only compression and filter method; not interlaced
	image := make([]byte, 0, len(data)+128)
	image = append(image, signature...)
	image = appendChunk(image, "IHDR", header)
	image = appendChunk(image, "PLTE", []byte(palette))
	image = appendChunk(image, "IDAT", data)
	return appendChunk(image, "IEND", nil), nil
}

// scanlines are the picture's lines, each with its filter in front.
func scanlines(m modules, size, scale int) []byte {
	stride := 1 + (size+7)/8
	lines := make([]byte, stride*size) // white, and as the line above where nothing else is said
	for y := range size {
		line := lines[y*stride : (y+1)*stride]
		line[0] = filterUp
		row := y/scale - quietZone
		if y%scale != 0 || row < 0 || row > len(m) {
			continue
		}
		line[0] = filterNone // the first line of a module, or of the quiet zone below
		if row == len(m) {
			continue
		}
		for x, dark := range m[row] {
			if dark {
				blacken(line[1:], (x+quietZone)*scale, scale)
			}
		}
	}
	return lines
}

// blacken sets n pixels from x on.
func blacken(line []byte, x, n int) {
	for ; n > 0; x, n = x+1, n-1 {
		line[x/8] |= 0x80 >> (x % 8)
	}
}

func compress(lines []byte) ([]byte, error) {
	var b bytes.Buffer
	w, _ := compressors.Get().(*zlib.Writer)
	defer compressors.Put(w)
	w.Reset(&b)
	_, err := w.Write(lines)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("qr: compress: %w", err)
	}
	return b.Bytes(), nil
}

func appendChunk(image []byte, kind string, data []byte) []byte {
	image = binary.BigEndian.AppendUint32(image, uint32(len(data))) //nolint:gosec // a few hundred
	start := len(image)
	image = append(append(image, kind...), data...)
	return binary.BigEndian.AppendUint32(image, crc32.ChecksumIEEE(image[start:]))
}
