// Package qr makes QR codes as small PNGs: black on white, error correction level M, and a quiet
// zone of four modules.
//
// The content determines the size of a code. A character of the alphanumeric mode (upper-case
// letters, digits and a few signs) takes 5.5 bits instead of 8. URLs should therefore be in upper
// case as far as host and path allow.
//
// The package encodes with boombuler's encoder, which spends most of its time on choosing among the
// eight masks. A [Series] makes the same codes much faster, from parts that the encoder made once.
package qr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// alphanumeric contains the characters of the alphanumeric mode, each at the index of its value.
const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"

// Errors for contents that cannot be encoded.
var (
	// ErrNotASCII reports a content with other characters than printable ASCII. Scanners interpret
	// other bytes differently.
	ErrNotASCII = errors.New("qr: content must be printable ASCII")
	// ErrTooLong reports a content whose code would have more than 61 modules per side, which is
	// hard to scan.
	ErrTooLong = errors.New("qr: content is too long")
)

// IsAlphanumeric reports whether the alphanumeric mode can encode a content.
func IsAlphanumeric(content string) bool { return strings.Trim(content, alphanumeric) == "" }

// encode encodes a content with boombuler's encoder. Characters outside of the alphanumeric mode
// need larger codes.
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
