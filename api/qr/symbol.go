package qr

import "github.com/boombuler/barcode"

// maxSize is the size of the largest codes of the package (version 11), in modules per side. Such a
// code can hold a URL with the longest possible host name, and a uint64 can hold one of its lines.
const maxSize = 61

// symbol is a code without quiet zone, stored by rows and by columns. Bit x of rows[y] and bit y of
// cols[x] are the module at (x, y). A set bit is a dark module. The module (0, 0) is at the upper
// left.
type symbol struct {
	size       int // modules per side
	rows, cols [maxSize]uint64
}

func (s *symbol) at(x, y int) bool { return s.rows[y]>>x&1 == 1 }

// flip inverts a module.
func (s *symbol) flip(x, y int) {
	s.rows[y] ^= 1 << x
	s.cols[x] ^= 1 << y
}

// xor inverts the modules that are dark in other, a symbol of the same size.
func (s *symbol) xor(other *symbol) {
	for i := range s.size {
		s.rows[i] ^= other.rows[i]
		s.cols[i] ^= other.cols[i]
	}
}

// symbolOf returns the code that the encoder has made as a symbol.
func symbolOf(code barcode.Barcode) *symbol {
	s := &symbol{size: code.Bounds().Dx()}
	for y := range s.size {
		for x := range s.size {
			if r, _, _, _ := code.At(x, y).RGBA(); r == 0 {
				s.flip(x, y)
			}
		}
	}
	return s
}

// isFunction reports whether a module at (x, y) belongs to a function pattern or to the format or
// version information. All other modules hold data. size is that of the code, in modules per side.
func isFunction(x, y, size int) bool {
	switch {
	case x == 6 || y == 6, x < 9 && y < 9, x < 9 && y >= size-8, x >= size-8 && y < 9:
		return true
	case size >= sizeOf(7) && (x < 6 && y >= size-11 || y < 6 && x >= size-11):
		return true
	}
	return isAlignment(x, y, size)
}

// sizeOf returns the size of a version of the standard, in modules per side.
func sizeOf(version int) int { return 17 + 4*version }

// isAlignment reports whether a module belongs to an alignment pattern, for versions up to 13.
func isAlignment(x, y, size int) bool {
	var centres []int
	switch {
	case size >= sizeOf(7):
		centres = []int{6, size / 2, size - 7}
	case size >= sizeOf(2):
		centres = []int{size - 7}
	}
	for _, cx := range centres {
		for _, cy := range centres {
			atFinder := cx == 6 && cy != size/2 || cy == 6 && cx != size/2
			if !atFinder && max(x-cx, cx-x, y-cy, cy-y) <= 2 {
				return true
			}
		}
	}
	return false
}

// formats contains the format information of error correction level M with each of the masks.
// Format information has 15 bits, which tell scanners the level and the mask.
var formats = [8]uint16{0x5412, 0x5125, 0x5e7c, 0x5b4b, 0x45f9, 0x40ce, 0x4f97, 0x4aa0}

// formatPositions returns the two positions (x, y) of a bit of the format information. Bit 0 is the
// highest one.
func formatPositions(i, size int) [2][2]int {
	switch {
	case i < 6:
		return [2][2]int{{i, 8}, {8, size - 1 - i}}
	case i == 6:
		return [2][2]int{{7, 8}, {8, size - 7}}
	case i == 7:
		return [2][2]int{{8, 8}, {size - 8, 8}}
	case i == 8:
		return [2][2]int{{8, 7}, {size - 7, 8}}
	default:
		return [2][2]int{{8, 14 - i}, {size - 15 + i, 8}}
	}
}

// maskOf returns the mask of a code, as its format information says.
func maskOf(s *symbol) int {
	var format uint16
	for i := range 15 {
		at := formatPositions(i, s.size)[0]
		format <<= 1
		if s.at(at[0], at[1]) {
			format |= 1
		}
	}
	for mask, f := range formats {
		if f == format {
			return mask
		}
	}
	panic("qr: the error correction level is not M") // encode requests M only
}

// maskSymbols returns a symbol for each mask. Its dark modules are those that the mask inverts in a
// code of the given size, and those of the format information. XOR with all[i] and all[j] changes
// the mask of a code from i to j.
func maskSymbols(size int) (all [8]symbol) {
	for mask := range all {
		m := &all[mask]
		m.size = size
		for y := range size {
			for x := range size {
				if !isFunction(x, y, size) && isMasked(mask, x, y) {
					m.flip(x, y)
				}
			}
		}
		for i := range 15 {
			for _, at := range formatPositions(i, size) {
				if formats[mask]>>(14-i)&1 == 1 {
					m.flip(at[0], at[1])
				}
			}
		}
	}
	return all
}

// isMasked reports whether a mask inverts a module. The conditions are those of the standard.
func isMasked(mask, x, y int) bool {
	switch mask {
	case 0:
		return (x+y)%2 == 0
	case 1:
		return y%2 == 0
	case 2:
		return x%3 == 0
	case 3:
		return (x+y)%3 == 0
	case 4:
		return (x/3+y/2)%2 == 0
	case 5:
		return x*y%2+x*y%3 == 0
	case 6:
		return (x*y%2+x*y%3)%2 == 0
	default:
		return ((x+y)%2+x*y%3)%2 == 0
	}
}
