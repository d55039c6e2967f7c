package api

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// contentTypeCSV is the Content-Type of tables.
const contentTypeCSV = "text/csv;charset=UTF-8"

// CSV answers with a table as a file download named name.csv.
func (r *Request) CSV(name string, table []byte) error {
	r.SetHeader("Content-Disposition", attachment(name+".csv"))
	return r.Bytes(http.StatusOK, contentTypeCSV, table)
}

// appendRecord appends one line of a table (RFC 4180).
func appendRecord(dst []byte, cells ...string) []byte {
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

// textCell keeps a spreadsheet from running a partner's text as a formula. Invisible characters may
// precede the formula.
func textCell(s string) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s, isInvisible))
	if strings.ContainsRune(formulaStarts, first) {
		return "'" + s
	}
	return s
}

// isInvisible reports whether a character shows nothing: white space, controls, formats, fillers.
func isInvisible(r rune) bool {
	const blankBraille = 0x2800
	return r == blankBraille || unicode.In(r, unicode.White_Space, unicode.Z, unicode.C,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// attachment returns the Content-Disposition of a file download (RFC 6266). Clients that do not
// know the UTF-8 form (RFC 8187) use the plain name.
func attachment(name string) string {
	name = safeFileName(name)
	plain := strings.Map(func(r rune) rune {
		if r > '~' || r == '%' { // some clients decode percent signs
			return '_'
		}
		return r
	}, name)
	if plain == name {
		return `attachment; filename="` + plain + `"`
	}
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + encodeExtended(name)
}

// safeFileName replaces characters that file systems forbid, or that shells and headers interpret.
func safeFileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\:*?\"'<>|;`$&", r) || isInvisible(r) && r != ' ' {
			return '_'
		}
		return r
	}, name)
}

// encodeExtended percent-encodes every character outside RFC 8187's attr-char.
func encodeExtended(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) ||
			strings.IndexByte("!#+-.^_~", c) >= 0) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
