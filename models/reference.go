package models

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxReferenceLength is the maximum number of code points in a partner's reference.
const MaxReferenceLength = 128

// The faults of a reference, worded for the partner.
var (
	ErrReferenceLength  = fmt.Errorf("must have 1 to %d characters", MaxReferenceLength)
	ErrReferenceControl = errors.New("must not contain control characters")
	ErrReferenceDots    = errors.New(`must not be "." or ".."`)
	ErrInvisible        = errors.New("must not contain invisible or direction-changing characters")
)

// ValidateReference checks a partner-supplied name (customerReference, batchReference,
// rowReference, orderId, itemId). It accepts 1 to 128 code points of valid UTF-8 without control or
// deceptive characters. It refuses "." and "..", which clients and proxies remove from paths.
// References are opaque: nothing is trimmed, folded or normalised. Invalid UTF-8 is
// ErrReferenceLength.
func ValidateReference(s string) error {
	switch n := utf8.RuneCountInString(s); {
	case n < 1 || n > MaxReferenceLength || !utf8.ValidString(s):
		return ErrReferenceLength
	case s == "." || s == "..":
		return ErrReferenceDots
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return ErrReferenceControl
		}
	}
	return checkVisible(s)
}

// ValidateLabel checks a line of text that people read: the name of an organisation, a Site or a
// client, or the reason of a discount or an act. It accepts what ValidateReference accepts, and
// also "." and "..".
func ValidateLabel(s string) error {
	if err := ValidateReference(s); !errors.Is(err, ErrReferenceDots) {
		return err
	}
	return nil
}

// ValidateText checks free text shown to people. Line ends and tabs are allowed; other control
// characters and deceptive characters are not. It does not check the length.
func ValidateText(s string) error {
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			return ErrReferenceControl
		}
	}
	return checkVisible(s)
}

// deceptive holds invisible characters, and characters that change the direction of surrounding
// text. The joiners U+200C and U+200D are not included: scripts and emoji need them.
var deceptive = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x061C, Hi: 0x061C, Stride: 1},
	{Lo: 0x200B, Hi: 0x200B, Stride: 1},
	{Lo: 0x200E, Hi: 0x200F, Stride: 1},
	{Lo: 0x202A, Hi: 0x202E, Stride: 1},
	{Lo: 0x2060, Hi: 0x2069, Stride: 1},
	{Lo: 0xFEFF, Hi: 0xFEFF, Stride: 1},
}}

// checkVisible returns ErrInvisible if the text has a deceptive character.
func checkVisible(s string) error {
	for _, r := range s {
		if unicode.Is(deceptive, r) {
			return ErrInvisible
		}
	}
	return nil
}
