package qr

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
)

// Series makes codes of contents that share a prefix and have endings of a fixed length. A Series
// makes the same codes as the encoder. It is safe for concurrent use.
//
// Before a mask is applied, a code is the sum (exclusive or) of contributions of the content's
// bits, because error correction is linear and every bit has a fixed position. A Series lets the
// encoder make the code of an ending of zeros, and a code for each single bit of an ending, and
// removes their masks. The code of any ending is the first code plus the contributions of its bits.
// The Series then applies the eight masks, and chooses the best of them.
type Series struct {
	prefix string
	ending int
	// nil if the prefix does not fit the alphanumeric mode: the encoder then makes all codes
	basis func() (*basis, error)
}

// bases caches the bases of the process by prefix and length. A process has a single public base
// URL, so there are few.
var bases sync.Map

// NewSeries returns a Series for a prefix and the length of its endings. The first code takes a
// tenth of a second, unless the process already had the same Series.
func NewSeries(prefix string, ending int) *Series {
	s := &Series{prefix: prefix, ending: ending}
	if IsAlphanumeric(prefix) {
		compute := sync.OnceValues(func() (*basis, error) { return newBasis(prefix, ending) })
		cached, _ := bases.LoadOrStore(fmt.Sprint(ending, prefix), compute)
		s.basis, _ = cached.(func() (*basis, error))
	}
	return s
}

// PNG returns the code of the prefix and an ending as a PNG, at least 256 pixels wide and high.
func (s *Series) PNG(ending string) ([]byte, error) { return s.appendPNG(nil, ending) }

func (s *Series) appendPNG(into []byte, ending string) ([]byte, error) {
	if s.basis == nil || len(ending) != s.ending || !IsAlphanumeric(ending) {
		code, err := encode(s.prefix + ending)
		if err != nil {
			return nil, err
		}
		return appendPNG(into, code.rows[:code.size]), nil
	}
	b, err := s.basis()
	if err != nil {
		return nil, err
	}
	code := b.code(ending)
	return appendPNG(into, code.rows[:code.size]), nil
}

// pictures holds buffers for PNGs.
var pictures = sync.Pool{New: func() any { return new([]byte) }}

// AppendDataURI appends the code of the prefix and an ending as the data URI of a PNG.
func (s *Series) AppendDataURI(into []byte, ending string) ([]byte, error) {
	picture, _ := pictures.Get().(*[]byte)
	defer pictures.Put(picture)
	png, err := s.appendPNG((*picture)[:0], ending)
	if err != nil {
		return nil, err
	}
	*picture = png
	return base64.StdEncoding.AppendEncode(append(into, "data:image/png;base64,"...), png), nil
}

// basis holds the parts of a Series's codes, without mask and format.
type basis struct {
	shared string // the whole pairs of characters of the prefix
	edge   string // the last character of the prefix, if it forms a pair with the first of an ending
	zero   symbol // the code of zeros after shared
	units  []unit // of edge and ending
	masks  [8]symbol
}

// unit is a pair of characters, or a single last character, with the contribution of each bit of
// its value.
type unit struct{ bits []symbol }

// The alphanumeric mode encodes a pair of characters as a number, and a single last character as a
// shorter number.
const (
	pairBits   = 11
	singleBits = 6
	radix      = len(alphanumeric)
)

func newBasis(prefix string, ending int) (*basis, error) {
	shared := len(prefix) &^ 1
	b := &basis{shared: prefix[:shared], edge: prefix[shared:]}
	width := len(b.edge) + ending
	zero, err := b.encode(width, 0, 0)
	if err != nil {
		return nil, err
	}
	b.masks = masks(zero.size)
	b.unmask(zero)
	b.zero = *zero
	for at := 0; at < width; at += 2 {
		var u unit
		for bit := range bitsAt(at, width) {
			code, err := b.encode(width, at, 1<<bit)
			if err != nil {
				return nil, err
			}
			b.unmask(code)
			code.xor(&b.zero)
			u.bits = append(u.bits, *code)
		}
		b.units = append(b.units, u)
	}
	return b, nil
}

func bitsAt(at, width int) int {
	if at+1 == width {
		return singleBits
	}
	return pairBits
}

// encode returns the encoder's code of shared and width zeros, of which the unit at index at has
// the given value.
func (b *basis) encode(width, at, value int) (*symbol, error) {
	text := []byte(strings.Repeat("0", width))
	if at+1 == width {
		text[at] = alphanumeric[value]
	} else {
		text[at], text[at+1] = alphanumeric[value/radix], alphanumeric[value%radix]
	}
	return encode(b.shared + string(text))
}

// unmask removes a code's mask and format.
func (b *basis) unmask(code *symbol) { code.xor(&b.masks[maskOf(code)]) }

// code returns the code of an ending.
func (b *basis) code(ending string) symbol {
	plain := b.zero
	text := b.edge + ending
	for i, u := range b.units {
		value := strings.IndexByte(alphanumeric, text[2*i])
		if 2*i+1 < len(text) {
			value = value*radix + strings.IndexByte(alphanumeric, text[2*i+1])
		}
		for bit := range u.bits {
			if value>>bit&1 == 1 {
				plain.xor(&u.bits[bit])
			}
		}
	}
	return b.masked(&plain)
}

// masked applies the mask with the lowest penalty. Of equal masks it takes the first, as the
// encoder does.
func (b *basis) masked(plain *symbol) symbol {
	var best symbol
	lowest := -1
	for i := range b.masks {
		code := *plain
		code.xor(&b.masks[i])
		if p := code.penalty(); lowest < 0 || p < lowest {
			best, lowest = code, p
		}
	}
	return best
}
