// Package csvtable writes CSV tables (RFC 4180) that spreadsheets read as intended. It quotes cells
// that contain any common separator. TextCell keeps untrusted text from running as a formula.
package csvtable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// AppendRecord appends one record to dst, ended by CRLF. It does not guard against formulas: see
// TextCell.
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

// TextCell returns s, with an apostrophe before it if a spreadsheet could run it as a formula.
// Invisible characters before the formula make no difference.
func TextCell(s string) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s, IsInvisible))
	if strings.ContainsRune(formulaStarts, first) {
		return "'" + s
	}
	return s
}

// IsInvisible reports whether a character shows nothing: white space, a control or format
// character, or a filler.
func IsInvisible(r rune) bool {
	const blankBraille = 0x2800
	return r == blankBraille || unicode.In(r, unicode.White_Space, unicode.Z, unicode.C,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
