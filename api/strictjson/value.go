// Package strictjson reads JSON bodies without leniency: one object, UTF-8, no duplicate keys, no lone surrogates, no
// NUL, no deep nesting. It keeps number literals and the order of members as they were written, so that two bodies can
// be compared by parsed value, and it decodes fields while collecting every fault instead of stopping at the first.
package strictjson

import "iter"

// Kind is the JSON type of a Value.
type Kind uint8

// The kinds. Absent is that of the zero Value, which stands for a member that is not there.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// node is one value of a parsed document. A document is one slice of nodes in the order of the text: a container is
// followed by its contents, which end before the index end.
type node struct {
	name string // the member's name, if the value is in an object
	text string // a decoded string, a number literal, "true" or "false"
	end  int32
	kind Kind
}

// Value is one parsed JSON value. Its strings share the memory of the whole document: clone what is kept for long.
// The zero Value is Absent.
type Value struct {
	doc []node
	at  int32
}

func (v Value) node() *node { return &v.doc[v.at] }

// Kind is the value's JSON type.
func (v Value) Kind() Kind {
	if v.doc == nil {
		return Absent
	}
	return v.node().kind
}

// Text is a string's decoded content, a number's literal as it was written, or "true" or "false"; "" for others.
func (v Value) Text() string {
	if v.doc == nil {
		return ""
	}
	return v.node().text
}

// Len counts an array's elements or an object's members; 0 for others.
func (v Value) Len() int {
	n := 0
	for range v.children() {
		n++
	}
	return n
}

// Get finds an object's member by its exact name; Absent if there is none.
func (v Value) Get(name string) Value {
	for child := range v.children() {
		if n := child.node(); n.name == name && v.Kind() == Object {
			return child
		}
	}
	return Value{}
}

// Members are an object's members in the order of the text; nothing for other kinds.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.Kind() != Object {
			return
		}
		for child := range v.children() {
			if !yield(child.node().name, child) {
				return
			}
		}
	}
}

// Elements are an array's elements with their indexes; nothing for other kinds.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Kind() != Array {
			return
		}
		i := 0
		for child := range v.children() {
			if !yield(i, child) {
				return
			}
			i++
		}
	}
}

func (v Value) children() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.doc == nil {
			return
		}
		for at := v.at + 1; at < v.node().end; at = v.doc[at].end {
			if !yield(Value{doc: v.doc, at: at}) {
				return
			}
		}
	}
}
