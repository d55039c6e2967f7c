// Package qr makes QR codes as small PNGs: black on white, error correction M, a quiet zone of four modules.
//
// What is encoded decides how large a code gets. In upper-case letters, digits and a few signs a character costs 5.5 bits
// instead of 8, and the whole search for the best pattern gets cheaper with the size; so a URL that is to be scanned is best
// written in upper case, as far as its host and its path allow.
package qr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"
)

const (
	quietZone = 4   // modules around the code, as the standard wants
	minSize   = 256 // pixels, at least
)

// alphanumeric are the characters of the QR mode that is cheap.
const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"

// The faults of a content.
var (
	// ErrNotASCII: scanners do not agree on what bytes beyond ASCII mean.
	ErrNotASCII = errors.New("qr: content must be printable ASCII")
	// ErrTooLong: no QR code holds so much.
	ErrTooLong = errors.New("qr: content is too long")
)

// IsAlphanumeric reports whether a content fits the cheap mode.
func IsAlphanumeric(content string) bool { return strings.Trim(content, alphanumeric) == "" }

// DataURI is the PNG of a content as a data URI.
func DataURI(content string) (string, error) {
	image, err := PNG(content)
	if err != nil {
		return "", err
	}
	const prefix = "data:image/png;base64,"
	text := make([]byte, 0, len(prefix)+base64.StdEncoding.EncodedLen(len(image)))
	return string(base64.StdEncoding.AppendEncode(append(text, prefix...), image)), nil
}

// PNG is the picture of a content, at least 256 pixels wide and high. Contents with other characters than those of
// the alphanumeric mode, which a host name in brackets has, take more room and are encoded all the same.
func PNG(content string) ([]byte, error) {
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
	return encodePNG(modulesOf(code))
}

// modules is a code without its quiet zone; modules[y][x] is dark.
type modules [][]bool

func modulesOf(code barcode.Barcode) modules {
	size := code.Bounds().Dx()
	m := make(modules, size)
	for y := range m {
		m[y] = make([]bool, size)
		for x := range m[y] {
			r, _, _, _ := code.At(x, y).RGBA()
			m[y][x] = r == 0
		}
	}
	return m
}
