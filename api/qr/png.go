package qr

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// The PNG is written directly, without a general compressor: two colours, one bit per pixel, and a
// multiple of eight pixels per module. A module in a line is then one or more whole bytes, and all
// lines of a row of modules are copies of its first line.

const (
	quietZone = 4   // modules on each side of the code, as the standard requires
	minSize   = 256 // minimum width and height, in pixels

	signature = "\x89PNG\r\n\x1a\n"
	palette   = "\xff\xff\xff\x00\x00\x00" // 0 is white, 1 is black
)

// appendPNG appends a code as a PNG. The code is square. Bit x of rows[y] is the module in column x
// of row y.
func appendPNG(into []byte, rows []uint64) []byte {
	modules := len(rows) + 2*quietZone
	wide := (minSize + 8*modules - 1) / (8 * modules) // bytes per module in a line
	size := uint32(8 * wide * modules)                //nolint:gosec // a few hundred
	into = append(into, signature...)
	into, start := beginChunk(into, "IHDR")
	into = binary.BigEndian.AppendUint32(into, size)
	into = binary.BigEndian.AppendUint32(into, size)
	// 1 bit per pixel; with a palette; the compression and filter methods 0, the only ones of PNG;
	// not interlaced
	into = append(into, 1, 3, 0, 0, 0)
	into = endChunk(into, start)
	into, start = beginChunk(into, "PLTE")
	into = endChunk(append(into, palette...), start)
	into, start = beginChunk(into, "IDAT")
	into = endChunk(appendLines(into, rows, wide), start)
	into, start = beginChunk(into, "IEND")
	return endChunk(into, start)
}

// beginChunk begins a PNG chunk. It leaves space for the length, and returns the index of the type.
func beginChunk(into []byte, kind string) (_ []byte, start int) {
	into = append(into, 0, 0, 0, 0)
	return append(into, kind...), len(into)
}

// endChunk fills in the length of the chunk whose type is at start, and appends its checksum.
func endChunk(into []byte, start int) []byte {
	binary.BigEndian.PutUint32(into[start-4:], uint32(len(into)-start-4)) //nolint:gosec // a few hundred
	return binary.BigEndian.AppendUint32(into, crc32.ChecksumIEEE(into[start:]))
}

// appendLines appends the picture's lines as a zlib stream (RFC 1950). A line is the filter type 0
// (none) followed by its pixels. A module takes wide bytes of a line.
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

// deflater writes a DEFLATE stream (RFC 1951) of a single block, with the same Huffman codes for
// every picture. The codes suit lines of white (0) and black (255) bytes. Most bytes are white, and
// most lines equal the line above:
//
//	literal 0       0
//	literal 255     10
//	284, 285        110000, 110001      lengths 227 to 258
//	256 to 283      1100100 to 1111111  end of block, lengths 3 to 226
//	distances       0, 10, 11           33 to 48, 49 to 64, 65 to 96
//
// The only distance in use is that to the line above: the length of a line, 34 to 70 bytes.
type deflater struct {
	out          []byte
	pending      uint64 // bits not yet in out, the first one lowest
	pendingBits  int    // their number
	stride, wide int    // bytes per line, and per module in a line
	low, high    uint64 // the sums s1 and s2 of the checksum Adler-32 (RFC 1950)
}

// bitString is a string of count bits. The lowest bit is written first.
type bitString struct {
	bits  uint64
	count int
}

// huffman returns a code word of count bits as a bitString. The highest bit of a code word is
// written first.
func huffman(code, count int) bitString {
	return bitString{bits.Reverse64(uint64(code)) >> (64 - count), count} //nolint:gosec // small
}

// blockHeader begins the block and describes its Huffman codes, as RFC 1951 §3.2.7 says. It lists
// the number of bits of each code word: of the symbols 0 to 285, then of the distances 0 to 12.
// These numbers are themselves Huffman-coded, where 16 repeats the last number, and 17 and 18
// repeat zero.
var blockHeader = func() (header []bitString) {
	add := func(strings ...bitString) { header = append(header, strings...) }
	add(bitString{1, 1}, bitString{2, 2}, bitString{286 - 257, 5}, bitString{13 - 1, 5}, bitString{18 - 4, 4})
	// The number of bits of the code words for 16, 17, 18, 0, 8, 7, 9, 6 … 2, 14, 1.
	for _, length := range []uint64{2, 3, 3, 0, 0, 3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 3} {
		add(bitString{length, 3})
	}
	one, two, six, seven := huffman(2, 3), huffman(3, 3), huffman(4, 3), huffman(5, 3)
	repeat, zeros, manyZeros := huffman(0, 2), huffman(6, 3), huffman(7, 3)
	add(one, manyZeros, bitString{138 - 11, 7}, manyZeros, bitString{116 - 11, 7}, two) // literals 0 to 255
	add(seven)                                                                          // 256 to 285
	for _, more := range []uint64{6, 6, 6, 6, 3} {
		add(repeat, bitString{more - 3, 2})
	}
	add(six, six)
	add(zeros, bitString{10 - 3, 3}, one, two, two) // distances
	return header
}()

// put appends a string of bits to the stream.
func (w *deflater) put(s bitString) {
	w.pending |= s.bits << w.pendingBits
	w.pendingBits += s.count
	if w.pendingBits >= 32 {
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(w.pending)) //nolint:gosec // the lower half
		w.pending >>= 32
		w.pendingBits -= 32
	}
}

// begin writes blockHeader.
func (w *deflater) begin() {
	for _, s := range blockHeader {
		w.put(s)
	}
}

// line writes height equal rows of size modules, with the quiet zone on both sides: the first line
// of pixels, then copies of it. A white byte is a single zero bit in the stream, so that n zero
// bits are n white bytes.
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

// repeat writes n bytes that equal those of the line above.
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

// copy writes the instruction to copy length bytes, 3 to 258, from the line above.
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

// sum adds a number of equal lines to the checksum. low is 1 plus the sum of all bytes, and high is
// the sum of the values of low after each byte, both modulo 65521.
func (w *deflater) sum(row, lines uint64) {
	// sum is the sum of a line's bytes. weighted multiplies each byte by the number of bytes from
	// it to the end of the line, because that many values of low include it.
	var sum, weighted uint64
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

// end ends the block, appends the checksum and returns the stream.
func (w *deflater) end() []byte {
	w.put(huffman(0b1100100, 7))
	for ; w.pendingBits > 0; w.pendingBits -= 8 {
		w.out = append(w.out, byte(w.pending)) //nolint:gosec // the lowest
		w.pending >>= 8
	}
	return binary.BigEndian.AppendUint32(w.out, uint32(w.high<<16|w.low)) //nolint:gosec // both are below 65521
}
