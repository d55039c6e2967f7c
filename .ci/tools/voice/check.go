package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"unicode"
)

// Widths in columns.
const (
	maxComment = 100 // of a line with a comment, including its indentation
	tabWidth   = 4
)

// A finding is one violation in one line.
type finding struct {
	file string
	line int
	text string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text)
}

// checkFile returns the violations in a Go, SQL or Make file, in any order. It does not check
// generated Go files.
func checkFile(name string, text []byte) ([]finding, error) {
	c := checker{file: name, lines: strings.Split(string(text), "\n")}
	switch path.Ext(name) {
	case ".go":
		if err := c.goFile(text); err != nil {
			return nil, err
		}
	case ".sql":
		c.lineComments("--")
	default:
		c.lineComments("#")
	}
	return c.found, nil
}

// A checker collects the findings in one file.
type checker struct {
	file  string
	lines []string
	found []finding
}

// add adds a finding in a line, counted from 1.
func (c *checker) add(line int, format string, args ...any) {
	c.found = append(c.found, finding{c.file, line, fmt.Sprintf(format, args...)})
}

// lineComments checks a file whose comments begin with marker and end with the line.
func (c *checker) lineComments(marker string) {
	for i, line := range c.lines {
		code, comment, found := strings.Cut(line, marker)
		if found {
			c.comment(i+1, strings.TrimSpace(code) == "", comment)
		}
	}
}

// goFile checks a Go file's comments and the names that it declares.
func (c *checker) goFile(text []byte) error {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, c.file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(tree) {
		return nil
	}
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			start := files.Position(comment.Pos())
			alone := strings.TrimSpace(c.lines[start.Line-1][:start.Column-1]) == ""
			if strings.HasPrefix(comment.Text, "//go:") {
				continue
			}
			for i, line := range strings.Split(comment.Text, "\n") {
				c.comment(start.Line+i, alone || i > 0, line)
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		for _, name := range declared(n) {
			c.name(files.Position(name.Pos()).Line, name.Name)
		}
		return true
	})
	return nil
}

// comment checks one line of a comment for retired words. If no code precedes the comment (alone)
// and the line has no URL, it also checks the width. The linter lll limits the width of lines with
// code.
func (c *checker) comment(line int, alone bool, text string) {
	if alone && !strings.Contains(text, "://") {
		if width := columns(c.lines[line-1]); width > maxComment {
			c.add(line, "the comment is %d columns wide, at most %d are allowed", width, maxComment)
		}
	}
	for _, r := range retired {
		if hit := r.inComment(text); hit != "" {
			c.add(line, "%q in a comment: %s", hit, r.instead)
		}
	}
}

// name checks a declared name for retired words.
func (c *checker) name(line int, name string) {
	parts := split(name)
	for _, r := range retired {
		if r.inName(name, parts) {
			c.add(line, "the name %s: %s", name, r.instead)
		}
	}
}

// columns returns the width of a line in columns.
func columns(line string) int {
	n := 0
	for _, r := range line {
		if r == '\t' {
			n += tabWidth
		} else {
			n++
		}
	}
	return n
}

// declared returns the names that n itself declares. It leaves out names that n's children declare.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return identifiers(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			return identifiers(n.Key, n.Value)
		}
	}
	return nil
}

// identifiers returns the expressions that are identifiers.
func identifiers(from ...ast.Expr) []*ast.Ident {
	var names []*ast.Ident
	for _, e := range from {
		if name, is := e.(*ast.Ident); is {
			names = append(names, name)
		}
	}
	return names
}

// split returns the words of a name in camelCase or snake_case, in lower case: "claimHTTPBody2" is
// "claim", "http", "body2".
func split(name string) []string {
	var parts []string
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && !boundary(runes, i) {
			continue
		}
		if part := strings.Trim(string(runes[start:i]), "_"); part != "" {
			parts = append(parts, strings.ToLower(part))
		}
		start = i
	}
	return parts
}

// boundary reports whether a word of a name begins at index i.
func boundary(name []rune, i int) bool {
	switch {
	case name[i] == '_':
		return true
	case !unicode.IsUpper(name[i]):
		return false
	case !unicode.IsUpper(name[i-1]):
		return true
	}
	return i+1 < len(name) && unicode.IsLower(name[i+1])
}
