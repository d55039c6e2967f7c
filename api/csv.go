package api

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"partnerbilling/api/csvtable"
	"partnerbilling/models"
)

// contentTypeCSV is the Content-Type of tables.
const contentTypeCSV = "text/csv;charset=UTF-8"

// CSV answers with an encoded table as a file download named name.csv.
func (r *Request) CSV(name string, table []byte) error {
	r.SetHeader("Content-Disposition", attachment(name+".csv"))
	return r.Bytes(http.StatusOK, contentTypeCSV, table)
}

// timeCell returns a cell with a time in ms of Unix time, "" for 0.
func timeCell(at models.Millis) string {
	if at == 0 {
		return ""
	}
	return strconv.FormatInt(int64(at), 10)
}

// attachment returns the Content-Disposition of a file download (RFC 6266). Clients that do not
// know the UTF-8 form of the name (RFC 8187) use the plain form.
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

// safeFileName replaces characters that file systems forbid, or that shells and headers interpret,
// by underscores.
func safeFileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\:*?\"'<>|;`$&", r) || csvtable.IsInvisible(r) && r != ' ' {
			return '_'
		}
		return r
	}, name)
}

// encodeExtended percent-encodes every byte outside RFC 8187's attr-char.
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
