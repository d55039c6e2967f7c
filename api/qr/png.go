package qr

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// The PNG is written directly, without a general compressor: two colours, one bit per pixel, and
// eight pixels per module. A module then is a byte, and all lines of a row of modules are copies of
// its first line.

const (
	quietZone = 4   // modules around the code, as the standard requires
	minSize   = 256 // of a side, in pixels

	signature = "\x89PNG\r\n\x1a\n"
	palette   = "\xff\xff\xff\x00\x00\x00" // 0 is white, 1 is black
)

// appendPNG appends a code as a PNG.
func appendPNG(into []byte, rows []uint64) []byte {
	modules := len(rows) + 2*quietZone
	wide := (minSize + 8*modules - 1) / (8 * modules) // bytes per module in a line
	size := uint32(8 * wide * modules)                //nolint:gosec // a few hundred
	into = append(into, signature...)
	into, start := beginChunk(into, "IHDR")
	into = binary.BigEndian.AppendUint32(into, size)
	into = binary.BigEndian.AppendUint32(into, size)
	// 1 bit per pixel, with a palette; the only compression and filter; not interlaced
	into = append(into, 1, 3, 0, 0, 0)
	into = endChunk(into, start)
	into, start = beginChunk(into, "PLTE")
	into = endChunk(append(into, palette...), start)
	into, start = beginChunk(into, "IDAT")
	into = endChunk(appendLines(into, rows, wide), start)
	into, start = beginChunk(into, "IEND")
	return endChunk(into, start)
}

// beginChunk begins a chunk. endChunk later fills in its length.
func beginChunk(into []byte, kind string) (_ []byte, start int) {
	into = append(into, 0, 0, 0, 0)
	return append(into, kind...), len(into)
}

func endChunk(into []byte, start int) []byte {
	binary.BigEndian.PutUint32(into[start-4:], uint32(len(into)-start-4)) //nolint:gosec // a few hundred
	return binary.BigEndian.AppendUint32(into, crc32.ChecksumIEEE(into[start:]))
}

// appendLines appends the picture's lines as a zlib stream. A line is the filter type 0 (none)
// followed by its pixels.
func appendLines(into []byte, rows []uint64, wide int) []byte {
	w := deflater{out: append(into, 0x78, 0x01), stride: 1 + wide*(len(rows)+2*quietZone), wide: wide, low: 1}
	w.begin()
	w.line(0, len(rows), quietZone)
	for _, row := range rows {
		w.line(row, len(rows), 1)
	}
	w.line(0, len(rows), quietZone)
	return w.end()
}

// deflater writes a single block of RFC 1951 with a fixed Huffman code. The code suits pictures
// that are mostly white (0), otherwise black (255), and whose lines mostly equal the line above:
//
//	literal 0       0
//	literal 255     10
//	284, 285        110000, 110001      lengths 227 to 258
//	256 to 283      1100100 to 1111111  end of block, lengths 3 to 226
//	distances       0, 10, 11           33 to 48, 49 to 64, 65 to 96
//
// The only distance in use is the length of a line.
type deflater struct {
	out          []byte
	pending      uint64 // bits not yet written, the first one lowest
	pendingBits  int    // their number
	stride, wide int    // bytes per line, and per module in a line
	low, high    uint64 // the sums A and B of Adler-32 (RFC 1950)
}

// bitString is a string of bits. The lowest bit is written first.
type bitString struct {
	bits  uint64
	count int
}

// huffman returns a code word as a bitString. The highest bit of a code word is written first.
func huffman(code, count int) bitString {
	return bitString{bits.Reverse64(uint64(code)) >> (64 - count), count} //nolint:gosec // small
}

// blockHeader describes the Huffman codes in the format of RFC 1951: the code lengths of literals
// and lengths 0 to 285, and of distances 0 to 12. The lengths themselves are Huffman-coded, where
// 16 repeats the last length, and 17 and 18 repeat zero.
var blockHeader = func() (header []bitString) {
	add := func(strings ...bitString) { header = append(header, strings...) }
	add(bitString{1, 1}, bitString{2, 2}, bitString{286 - 257, 5}, bitString{13 - 1, 5}, bitString{18 - 4, 4})
	// The lengths of the codes for 16, 17, 18, 0, 8, 7, 9, 6 … 2, 14, 1.
	for _, length := range []uint64{2, 3, 3, 0, 0, 3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 3} {
		add(bitString{length, 3})
	}
	one, two, six, seven := huffman(2, 3), huffman(3, 3), huffman(4, 3), huffman(5, 3)
	repeat, zeros, manyZeros := huffman(0, 2), huffman(6, 3), huffman(7, 3)
	add(one, manyZeros, bitString{138 - 11, 7}, manyZeros, bitString{116 - 11, 7}, two) // literals 0 to 255
	add(seven)
	for _, more := range []uint64{6, 6, 6, 6, 3} {
		add(repeat, bitString{more - 3, 2})
	}
	add(six, six)
	add(zeros, bitString{10 - 3, 3}, one, two, two) // distances
	return header
}()

func (w *deflater) put(s bitString) {
	w.pending |= s.bits << w.pendingBits
	w.pendingBits += s.count
	if w.pendingBits >= 32 {
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(w.pending)) //nolint:gosec // the lower half
		w.pending >>= 32
		w.pendingBits -= 32
	}
}

func (w *deflater) begin() {
	for _, s := range blockHeader {
		w.put(s)
	}
}

// line writes the same row of modules height times.
func (w *deflater) line(row uint64, size, height int) {
	w.put(bitString{0, 1 + quietZone*w.wide})
	for x := range size {
		dark := bitString{0, 1}
		if row>>x&1 == 1 {
			dark = bitString{1, 2}
		}
		for range w.wide {
			w.put(dark)
		}
	}
	w.put(bitString{0, quietZone * w.wide})
	lines := 8 * w.wide * height
	w.repeat((lines - 1) * w.stride)
	w.sum(row, uint64(lines)) //nolint:gosec // a few dozen
}

// repeat copies n bytes from the line above.
func (w *deflater) repeat(n int) {
	for n > 0 {
		length := min(n, 258)
		if rest := n - length; rest == 1 || rest == 2 { // the minimum length is 3
			length -= 3
		}
		w.copy(length)
		n -= length
	}
}

// copy writes a copy of length bytes at the distance of a line.
func (w *deflater) copy(length int) {
	extra, symbol := 0, 285
	if n := length - 3; n < 8 {
		symbol = 257 + n
	} else if length < 258 {
		extra = bits.Len(uint(n)) - 3
		symbol = 257 + 4*extra + n>>extra
	}
	if symbol >= 284 {
		w.put(huffman(0b110000+symbol-284, 6))
	} else {
		w.put(huffman(0b1100100+symbol-256, 7))
	}
	w.put(bitString{uint64(length-3) & (1<<extra - 1), extra}) //nolint:gosec // positive
	switch distance := uint64(w.stride); {                     //nolint:gosec // positive
	case distance <= 48:
		w.put(bitString{0, 1})
		w.put(bitString{distance - 33, 4})
	case distance <= 64:
		w.put(bitString{1, 2})
		w.put(bitString{distance - 49, 4})
	default:
		w.put(bitString{3, 2})
		w.put(bitString{distance - 65, 5})
	}
}

// sum adds equal lines to the checksum. low is the sum of all bytes, and high that of all values of
// low.
func (w *deflater) sum(row, lines uint64) {
	var sum, weighted uint64 // of a line's bytes; weighted by the number of low values that include a byte
	for ; row != 0; row &= row - 1 {
		first := 1 + w.wide*(quietZone+bits.TrailingZeros64(row))
		for i := range w.wide {
			sum += 255
			weighted += 255 * uint64(w.stride-first-i) //nolint:gosec // positive
		}
	}
	stride := uint64(w.stride) //nolint:gosec // positive
	w.high += lines*(stride*w.low+weighted) + stride*sum*(lines*(lines-1)/2)
	w.low += lines * sum
	w.high %= 65521
	w.low %= 65521
}

// end ends the block and appends the checksum.
func (w *deflater) end() []byte {
	w.put(huffman(0b1100100, 7))
	for ; w.pendingBits > 0; w.pendingBits -= 8 {
		w.out = append(w.out, byte(w.pending)) //nolint:gosec // the lowest
		w.pending >>= 8
	}
	return binary.BigEndian.AppendUint32(w.out, uint32(w.high<<16|w.low)) //nolint:gosec // both are below 65521
}
