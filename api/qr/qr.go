// Package qr makes QR codes (ISO/IEC 18004) as small PNGs: black on white, error correction level
// M, and a quiet zone of four modules. A module is one of the small squares of a code.
//
// The content determines the size of a code. A character of the alphanumeric mode (upper-case
// letters, digits and a few signs) takes 5.5 bits instead of 8. URLs should therefore be in upper
// case as far as host and path allow.
//
// The standard defines eight masks, patterns that invert some of the modules. The encoder, the
// package github.com/boombuler/barcode/qr, spends most of its time on choosing the mask that scans
// best. A [Series] makes the same codes much faster, for contents that share a prefix and have
// endings of one length. It combines parts that the encoder has made once.
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
	// ErrNotASCII reports a content with characters other than printable ASCII, which scanners
	// interpret differently.
	ErrNotASCII = errors.New("qr: content must be printable ASCII")
	// ErrTooLong reports a content whose code would have more than 61 modules per side, which is
	// hard to scan.
	ErrTooLong = errors.New("qr: content is too long")
)

// IsAlphanumeric reports whether the alphanumeric mode can encode the content.
func IsAlphanumeric(content string) bool { return strings.Trim(content, alphanumeric) == "" }

// encode encodes a content with boombuler's encoder, in the alphanumeric mode if possible. It
// returns ErrNotASCII or ErrTooLong for a content that cannot be encoded.
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
