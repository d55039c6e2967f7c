package api

import (
	"iter"
	"strings"
)

// preference returns the value of the first preference of the given name in the Prefer headers (RFC
// 7240). Names ignore case. The value is unquoted, and "" if the preference has none.
func preference(headers []string, name string) (value string, ok bool) {
	for _, header := range headers {
		for item := range splitQuoted(header, ',') {
			for first := range splitQuoted(item, ';') { // the rest are parameters
				found, value, _ := strings.Cut(first, "=")
				if strings.EqualFold(trimBlank(found), name) {
					return unquote(trimBlank(value)), true
				}
				break
			}
		}
	}
	return "", false
}

// splitQuoted yields the parts of a header's value between separators. It ignores separators in
// quoted strings.
func splitQuoted(s string, separator byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] == '"':
				quoted = !quoted
			case s[i] == '\\' && quoted:
				i++
			case s[i] == separator && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// trimBlank trims the optional white space around the parts of a header's value.
func trimBlank(s string) string { return strings.Trim(s, " \t") }

// unquote returns the content of a quoted string, and any other value unchanged.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '\\' && i+1 < len(s)-1 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
