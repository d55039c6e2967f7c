package qr

import (
	"encoding/base64"
	"strings"
	"sync"
)

// Series makes codes of contents that share a prefix and have endings of a fixed length. It makes
// the same codes as the encoder of github.com/boombuler/barcode, but faster. It leaves contents
// that are not alphanumeric, and endings of another length, to the encoder itself. A Series is safe
// for concurrent use.
//
// Error correction is linear, and every bit of a content has a fixed position in the code. Before
// masking, a bit of the ending therefore inverts the same modules in all codes: its contribution. A
// Series has the encoder make the code of the ending "00…0", and one code for each bit of the
// ending. It removes their masks, and XORs each with the first code to find the contribution. The
// code of an ending is the first code XOR the contributions of its bits, with the best of the eight
// masks.
type Series struct {
	prefix string
	ending int                    // length, in bytes
	basis  func() (*basis, error) // nil if the prefix is not alphanumeric
}

// bases caches the function basis of each Series by basisKey. It is never emptied: a process has a
// single public base URL, and so few prefixes.
var bases sync.Map

type basisKey struct {
	prefix string
	ending int // length, in bytes
}

// NewSeries returns a Series for a prefix and the length of its endings, in bytes. The first code
// of a prefix and length is slow. It computes what makes the others fast, and all Series of the
// process share the result.
func NewSeries(prefix string, ending int) *Series {
	s := &Series{prefix: prefix, ending: ending}
	if IsAlphanumeric(prefix) {
		compute := sync.OnceValues(func() (*basis, error) { return newBasis(prefix, ending) })
		cached, _ := bases.LoadOrStore(basisKey{prefix, ending}, compute)
		s.basis, _ = cached.(func() (*basis, error))
	}
	return s
}

// PNG returns the code of the prefix and an ending as a PNG, at least 256 pixels wide and high. It
// returns ErrNotASCII or ErrTooLong for a content that cannot be encoded.
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

// pictures holds buffers for the PNGs of AppendDataURI.
var pictures = sync.Pool{New: func() any { return new([]byte) }}

// AppendDataURI appends the PNG of the prefix and an ending as a data URI. Its errors are those of
// PNG; the returned slice is nil then.
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

// basis holds the parts of a Series's codes, without mask and format information.
//
// The alphanumeric mode encodes characters in pairs. A prefix of odd length ends with half a pair:
// its last character forms a pair with the first one of the ending.
type basis struct {
	shared string    // the prefix, without its last character if its length is odd
	edge   string    // that last character, or "" if the length is even
	zero   symbol    // the code of shared followed by zeros instead of edge and ending
	units  []unit    // of edge and ending
	masks  [8]symbol // see maskSymbols
}

// unit is a pair of characters, or a single last character. bits has the contribution of each bit
// of its value, the lowest first.
type unit struct{ bits []symbol }

// The alphanumeric mode encodes a pair of characters as a number of 11 bits, and a single last
// character as one of 6 bits.
const (
	pairBits   = 11
	singleBits = 6
	radix      = len(alphanumeric)
)

// newBasis computes the basis of a prefix and a length of endings. It has the encoder make one code
// for each bit.
func newBasis(prefix string, ending int) (*basis, error) {
	shared := len(prefix) &^ 1
	b := &basis{shared: prefix[:shared], edge: prefix[shared:]}
	width := len(b.edge) + ending
	zero, err := b.encode(width, 0, 0)
	if err != nil {
		return nil, err
	}
	b.masks = maskSymbols(zero.size)
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

// bitsAt returns the number of bits of the unit at index at of width characters.
func bitsAt(at, width int) int {
	if at+1 == width {
		return singleBits
	}
	return pairBits
}

// encode returns the encoder's code of shared followed by width characters. The unit at index at
// has the given value. All other characters are 0.
func (b *basis) encode(width, at, value int) (*symbol, error) {
	text := []byte(strings.Repeat("0", width))
	if at+1 == width {
		text[at] = alphanumeric[value]
	} else {
		text[at], text[at+1] = alphanumeric[value/radix], alphanumeric[value%radix]
	}
	return encode(b.shared + string(text))
}

// unmask removes a code's mask and format information.
func (b *basis) unmask(code *symbol) { code.xor(&b.masks[maskOf(code)]) }

// code returns the code of an ending, which has the length of the Series and is alphanumeric.
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

// masked returns the code with the mask of the lowest penalty. Of equal penalties the first mask
// wins, as in the encoder.
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
