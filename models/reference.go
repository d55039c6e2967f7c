package models

import (
	"errors"
	"unicode"
	"unicode/utf8"
)

// MaxReferenceLength is the most code points that a partner's reference may have.
const MaxReferenceLength = 128

// The faults of a reference, worded for the partner.
var (
	ErrReferenceLength  = errors.New("must have 1 to 128 characters")
	ErrReferenceControl = errors.New("must not contain control characters")
	ErrReferenceDots    = errors.New(`must not be "." or ".."`)
)

// ValidateReference checks a partner-supplied name (customerReference, batchReference, rowReference, orderId,
// itemId): 1 to 128 code points of valid UTF-8, none of them a control character, and neither "." nor "..", which
// clients and proxies fold away in paths. References are opaque: nothing is trimmed, folded or normalised.
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
	return nil
}
