package api

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// contentTypeCSV is that of tables.
const contentTypeCSV = "text/csv;charset=UTF-8"

// CSV answers with a table as a file to be saved, named after what it is of.
func (r *Request) CSV(name string, table []byte) error {
	r.SetHeader("Content-Disposition", attachment(name+".csv"))
	return r.Bytes(http.StatusOK, contentTypeCSV, table)
}

// appendRecord writes one line of a table (RFC 4180).
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

// needsQuotes reports whether a cell could be read as more than one. Spreadsheets guess the separator, so all that they know
// count; a space at the beginning would be dropped.
func needsQuotes(cell string) bool {
	return strings.ContainsAny(cell, ",;\t|\"\r\n\v\f\u0085\u2028\u2029") || strings.HasPrefix(cell, " ")
}

// formulaStarts begin what a spreadsheet runs as a formula; the wide ones do where a Japanese one reads them.
const formulaStarts = "=+-@＝＋－＠"

// textCell keeps a spreadsheet from running a partner's text as a formula, which may stand behind what is not seen.
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

// attachment is the Content-Disposition of a file to be saved (RFC 6266). The plain name is for clients that do not know
// the other, which is in UTF-8 (RFC 8187).
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

// safeFileName replaces what some file system cannot have in a name, or a shell or header reads as something else.
func safeFileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\:*?\"'<>|;`$&", r) || isInvisible(r) && r != ' ' {
			return '_'
		}
		return r
	}, name)
}

// encodeExtended percent-encodes all but the characters that RFC 8187 leaves alone.
func encodeExtended(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte("!#+-.^_~", c) >= 0) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
