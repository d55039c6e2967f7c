// Package qr makes QR codes as small PNGs: black on white, error correction M, a quiet zone of four modules.
//
// What is encoded decides how large a code gets. In upper-case letters, digits and a few signs a character costs 5.5 bits
// instead of 8; so a URL that is to be scanned is best written in upper case, as far as its host and its path allow.
//
// The encoder is boombuler's. It takes a millisecond and more for a code, nearly all of it to try the eight masks. A Series
// makes the very same codes in a hundredth of that, from what it has learnt from the encoder.
package qr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// alphanumeric are the characters of the QR mode that is cheap, each at the place of its value.
const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"

// The faults of a content.
var (
	// ErrNotASCII: scanners do not agree on what bytes beyond ASCII mean.
	ErrNotASCII = errors.New("qr: content must be printable ASCII")
	// ErrTooLong: the code would have more than 61 modules a side, too many to be scanned with ease.
	ErrTooLong = errors.New("qr: content is too long")
)

// IsAlphanumeric reports whether a content fits the cheap mode.
func IsAlphanumeric(content string) bool { return strings.Trim(content, alphanumeric) == "" }

// PNG is the picture of a content, at least 256 pixels wide and high. Contents with other characters than those of
// the alphanumeric mode, which a host name in brackets has, take more room and are encoded all the same.
func PNG(content string) ([]byte, error) {
	s, err := encode(content)
	if err != nil {
		return nil, err
	}
	return appendPNG(nil, s.rows[:s.size]), nil
}

// encode is the encoder's code of a content.
func encode(content string) (*symbol, error) {
	mode := qr.AlphaNumeric
	if !IsAlphanumeric(content) {
		mode = qr.Unicode
	}
	if strings.IndexFunc(content, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
		return nil, ErrNotASCII
	}
	code, err := qr.Encode(content, qr.M, mode)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooLong, err)
	}
	if code.Bounds().Dx() > maxSize {
		return nil, ErrTooLong
	}
	return symbolOf(code), nil
}
