package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Statement is one SQL statement with named arguments, written ":name" like variables of psql. An
// operator can paste the text into psql after \set for each name.
type Statement struct {
	text  string   // with $1, $2 … in place of the names
	names []string // in the order of their first use
}

// Args are the values of a statement's arguments by name.
type Args map[string]any

// SQL parses the text of a statement. The name of an argument consists of a to z, 0 to 9 and _, and
// does not begin with a digit. A colon in a literal, quoted name, comment or cast (::) begins no
// argument. SQL panics at a dollar quote or an escape string (E'...'), which it does not parse.
func SQL(text string) Statement {
	var s Statement
	var out strings.Builder
	for rest := text; rest != ""; {
		n := skip(rest)
		if n > 0 {
			out.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		name := argument(rest)
		if name == "" {
			out.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		out.WriteString("$" + strconv.Itoa(s.number(name)))
		rest = rest[1+len(name):]
	}
	s.text = out.String()
	return s
}

// number returns the number of an argument, from 1. A new name gets the next number.
func (s *Statement) number(name string) int {
	if i := slices.Index(s.names, name); i >= 0 {
		return i + 1
	}
	s.names = append(s.names, name)
	return len(s.names)
}

// Text returns the statement as it is sent, with numbered parameters.
func (s Statement) Text() string { return s.text }

// Names returns the names of the arguments in the order of their numbers.
func (s Statement) Names() []string { return s.names }

// Bind returns the values of the arguments in the order of their numbers. It returns an error if an
// argument has no value, or a value no argument.
func (s Statement) Bind(args Args) ([]any, error) {
	values := make([]any, len(s.names))
	for i, name := range s.names {
		value, ok := args[name]
		if !ok {
			return nil, fmt.Errorf("postgres: the statement's argument %q has no value", name)
		}
		values[i] = value
	}
	if len(args) != len(values) {
		return nil, errors.New("postgres: a value has no argument in the statement")
	}
	return values, nil
}

// dollarQuote finds a dollar quote at the start of a text.
var dollarQuote = regexp.MustCompile(`^\$\w*\$`)

// skip returns the length of the literal, name, comment or cast at the start of text, in which a
// colon begins no argument; 0: there is none.
func skip(text string) int {
	switch {
	case strings.HasPrefix(text, "::"):
		return 2
	case strings.HasPrefix(text, "--"):
		return through(text, 2, "\n")
	case strings.HasPrefix(text, "/*"):
		return through(text, 2, "*/")
	case text[0] == '\'':
		return through(text, 1, "'")
	case text[0] == '"':
		return through(text, 1, "\"")
	case text[0] == '$' && dollarQuote.MatchString(text), strings.HasPrefix(text, "E'"), strings.HasPrefix(text, "e'"):
		//nolint:forbidigo // the texts of statements are constants
		panic("postgres: a statement has a dollar quote or an escape string: " + text)
	}
	n := 0
	for n < len(text) && (isNameByte(text[n], n > 0) || 'A' <= text[n] && text[n] <= 'Z' || n > 0 && text[n] == '$') {
		n++
	}
	return n
}

// through returns the length of text up to and including the first end after from.
func through(text string, from int, end string) int {
	if i := strings.Index(text[from:], end); i >= 0 {
		return from + i + len(end)
	}
	return len(text)
}

// argument returns the name of the argument at the start of text; "": there is none.
func argument(text string) string {
	if text[0] != ':' {
		return ""
	}
	end := 1
	for end < len(text) && isNameByte(text[end], end > 1) {
		end++
	}
	return text[1:end]
}

func isNameByte(b byte, inside bool) bool {
	return b >= 'a' && b <= 'z' || b == '_' || inside && b >= '0' && b <= '9'
}

// isStruct reports whether dest points to a struct with columns, not to a single value such as a
// time or an id.
func isStruct(dest any) bool {
	switch dest.(type) {
	case sql.Scanner, *time.Time:
		return false
	}
	t := reflect.TypeOf(dest)
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}
