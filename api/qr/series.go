package qr

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
)

// Series makes the codes of contents that begin alike and go on with an ending of a fixed length. It is safe for concurrent
// use. What it makes is what PNG makes of the whole content.
//
// It rests on this: before a mask is laid over it, a code is a sum (exclusive or) over the bits of its content. Error
// correction is linear, and every bit has its place. So a Series lets the encoder make the code of an ending of zeros and,
// for each bit of an ending, that of the ending with this bit alone, and takes their masks off. The code of any other ending is
// the first one plus the differences that the others make. The eight masks are then laid over it and judged a line at a time.
type Series struct {
	prefix string
	ending int
	learnt func() (*lesson, error) // nil if the prefix does not fit the alphanumeric mode: then all are left to the encoder
}

// lessons are those of the process, by prefix and length. It has one public base URL, so there are no more than one or two.
var lessons sync.Map

// NewSeries makes a Series. The first code takes a tenth of a second, unless the process has had the same Series before.
func NewSeries(prefix string, ending int) *Series {
	s := &Series{prefix: prefix, ending: ending}
	if IsAlphanumeric(prefix) {
		learn := sync.OnceValues(func() (*lesson, error) { return newLesson(prefix, ending) })
		known, _ := lessons.LoadOrStore(fmt.Sprint(ending, prefix), learn)
		s.learnt, _ = known.(func() (*lesson, error))
	}
	return s
}

// PNG is the picture of the content with an ending.
func (s *Series) PNG(ending string) ([]byte, error) { return s.appendPNG(nil, ending) }

func (s *Series) appendPNG(into []byte, ending string) ([]byte, error) {
	if s.learnt == nil || len(ending) != s.ending || !IsAlphanumeric(ending) {
		code, err := encode(s.prefix + ending)
		if err != nil {
			return nil, err
		}
		return appendPNG(into, code.rows[:code.size]), nil
	}
	lesson, err := s.learnt()
	if err != nil {
		return nil, err
	}
	code := lesson.code(ending)
	return appendPNG(into, code.rows[:code.size]), nil
}

// pictures are what base64 is made from.
var pictures = sync.Pool{New: func() any { return new([]byte) }}

// AppendDataURI appends the picture of the content with an ending as a data URI.
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

// lesson is what was learnt of a Series: codes without mask and format.
type lesson struct {
	shared string // what no ending has a part in: whole pairs of characters
	edge   string // the last character of the prefix, if it makes a pair with the first of an ending
	zero   symbol // of nothing but zeros after shared
	units  []unit
	masks  [8]symbol
}

// unit is a pair of characters, or the last one if it is alone, and what each bit of its value changes.
type unit struct{ bits []symbol }

// The alphanumeric mode writes two characters as one number, and one that is left as another.
const (
	pairBits   = 11
	singleBits = 6
	base       = len(alphanumeric)
)

func newLesson(prefix string, ending int) (*lesson, error) {
	shared := len(prefix) &^ 1
	l := &lesson{shared: prefix[:shared], edge: prefix[shared:]}
	width := len(l.edge) + ending
	zero, err := l.encode(width, 0, 0)
	if err != nil {
		return nil, err
	}
	l.masks = masks(zero.size)
	l.unmask(zero)
	l.zero = *zero
	for at := 0; at < width; at += 2 {
		var u unit
		for bit := range bitsAt(at, width) {
			code, err := l.encode(width, at, 1<<bit)
			if err != nil {
				return nil, err
			}
			l.unmask(code)
			code.xor(&l.zero)
			u.bits = append(u.bits, *code)
		}
		l.units = append(l.units, u)
	}
	return l, nil
}

func bitsAt(at, width int) int {
	if at+1 == width {
		return singleBits
	}
	return pairBits
}

// encode lets the encoder make the code of zeros in the whole width, but for the characters at a place with this value.
func (l *lesson) encode(width, at, value int) (*symbol, error) {
	text := []byte(strings.Repeat("0", width))
	if at+1 == width {
		text[at] = alphanumeric[value]
	} else {
		text[at], text[at+1] = alphanumeric[value/base], alphanumeric[value%base]
	}
	return encode(l.shared + string(text))
}

// unmask takes off a code's mask, and what says which one it was.
func (l *lesson) unmask(code *symbol) { code.xor(&l.masks[maskOf(code)]) }

// code is the code of an ending.
func (l *lesson) code(ending string) symbol {
	plain := l.zero
	text := l.edge + ending
	for i, u := range l.units {
		value := strings.IndexByte(alphanumeric, text[2*i])
		if 2*i+1 < len(text) {
			value = value*base + strings.IndexByte(alphanumeric, text[2*i+1])
		}
		for bit := range u.bits {
			if value>>bit&1 == 1 {
				plain.xor(&u.bits[bit])
			}
		}
	}
	return l.masked(&plain)
}

// masked lays the mask over a code that makes it easiest to scan: of several the first, as the encoder has it.
func (l *lesson) masked(plain *symbol) symbol {
	var best symbol
	least := -1
	for i := range l.masks {
		code := *plain
		code.xor(&l.masks[i])
		if p := code.penalty(); least < 0 || p < least {
			best, least = code, p
		}
	}
	return best
}
