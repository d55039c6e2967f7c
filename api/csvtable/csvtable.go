// Package csvtable writes CSV tables that spreadsheets read as they are meant: RFC 4180, quoted
// against every common separator, and without formulas.
package csvtable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// AppendRecord appends one line of a table (RFC 4180).
func AppendRecord(dst []byte, cells ...string) []byte {
	for i, cell := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		if !needsQuotes(cell) {
			dst = append(dst, cell...)
			continue
		}
		dst = append(append(append(dst, '"'), strings.ReplaceAll(cell, `"`, `""`)...), '"')
	}
	return append(dst, "\r\n"...)
}

// needsQuotes reports whether a cell must be quoted. Spreadsheets guess the separator, so every
// common separator counts; a leading space would be dropped.
func needsQuotes(cell string) bool {
	return strings.ContainsAny(cell, ",;\t|\"\r\n\v\f\u0085\u2028\u2029") || strings.HasPrefix(cell, " ")
}

// formulaStarts are the characters that begin a formula. Japanese spreadsheets accept the
// full-width ones.
const formulaStarts = "=+-@＝＋－＠"

// TextCell keeps a spreadsheet from running a partner's text as a formula. Invisible characters may
// precede the formula.
func TextCell(s string) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s, IsInvisible))
	if strings.ContainsRune(formulaStarts, first) {
		return "'" + s
	}
	return s
}

// IsInvisible reports whether a character shows nothing: white space, controls, formats, fillers.
func IsInvisible(r rune) bool {
	const blankBraille = 0x2800
	return r == blankBraille || unicode.In(r, unicode.White_Space, unicode.Z, unicode.C,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
