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

// document is a parsed text: one slice of nodes in the order of the text. A container is followed by its contents, which
// end before the index end. Nodes have no pointers, so a large document costs the garbage collector nothing.
type document struct {
	nodes   []node
	text    string // as it was written
	decoded string // the strings with escapes, decoded, one after the other
	limits  Limits
}

// node is one value of a document: 32 bytes.
type node struct {
	name  span // the member's name, if the value is in an object
	text  span // a decoded string, a number literal, "true" or "false"
	start uint32
	stop  uint32 // the bytes from start to stop are the value, with its name if it has one
	end   int32
	kind  Kind
}

// span is a piece of a document's text or, from an offset of the text's length, of its decoded strings.
type span struct{ at, length uint32 }

func (d *document) get(s span) string {
	if int(s.at) < len(d.text) {
		return d.text[s.at : s.at+s.length]
	}
	at := int(s.at) - len(d.text)
	return d.decoded[at : at+int(s.length)]
}

// Value is one parsed JSON value. Its strings share the memory of the whole document: clone what is kept for long.
// The zero Value is Absent.
type Value struct {
	doc *document
	at  int32
}

func (v Value) node() *node { return &v.doc.nodes[v.at] }

// name is the name of a member.
func (v Value) name() string { return v.doc.get(v.node().name) }

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
	return v.doc.get(v.node().text)
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
		if v.Kind() == Object && child.name() == name {
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
			if !yield(child.name(), child) {
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
		for at := v.at + 1; at < v.node().end; at = v.doc.nodes[at].end {
			if !yield(Value{doc: v.doc, at: at}) {
				return
			}
		}
	}
}
