// Package strictjson parses JSON bodies strictly: one object, UTF-8, no duplicate keys, no lone
// surrogates, no NUL, and limited nesting. It preserves number literals and the order of members,
// so that two bodies can be compared by parsed value. Its decoder collects all faults instead of
// stopping at the first.
package strictjson

import "iter"

// Kind is the JSON type of a Value.
type Kind uint8

// The kinds. Absent is the kind of the zero Value, which represents an absent member.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// document is a parsed text: a slice of nodes in the order of the text. The contents of an array or
// object follow its node. Nodes contain no pointers, so that the garbage collector does not scan
// them.
type document struct {
	nodes   []node
	text    string // the original text
	decoded string // the decoded strings that had escapes, concatenated
	limits  Limits
}

// node is a value of a document. It has 32 bytes.
type node struct {
	name  span // the member's name, if the value is in an object
	text  span // a decoded string, a number literal, "true" or "false"
	start uint32
	stop  uint32 // text[start:stop] is the value, including the member's name
	end   int32  // the index in nodes after the node's contents
	kind  Kind
}

// span is a piece of the concatenation of a document's text and decoded strings.
type span struct{ at, length uint32 }

// get returns the text of a span.
func (d *document) get(s span) string {
	if int(s.at) < len(d.text) {
		return d.text[s.at : s.at+s.length]
	}
	at := int(s.at) - len(d.text)
	return d.decoded[at : at+int(s.length)]
}

// Value is an immutable parsed JSON value. Its strings share the document's memory, so clone
// strings that are kept for long. The zero Value is Absent.
type Value struct {
	doc *document
	at  int32
}

func (v Value) node() *node { return &v.doc.nodes[v.at] }

// name returns the name of a member.
func (v Value) name() string { return v.doc.get(v.node().name) }

// Kind returns the value's JSON type.
func (v Value) Kind() Kind {
	if v.doc == nil {
		return Absent
	}
	return v.node().kind
}

// Text returns a string's decoded content, a number's literal, or "true" or "false". It returns ""
// for other kinds.
func (v Value) Text() string {
	if v.doc == nil {
		return ""
	}
	return v.doc.get(v.node().text)
}

// Len returns the number of an array's elements or an object's members, and 0 for other kinds.
func (v Value) Len() int {
	n := 0
	for range v.children() {
		n++
	}
	return n
}

// Get returns an object's member by its exact name. It returns the zero Value if there is none.
func (v Value) Get(name string) Value {
	for child := range v.children() {
		if v.Kind() == Object && child.name() == name {
			return child
		}
	}
	return Value{}
}

// Members iterates over an object's members in the order of the text. Other kinds have none.
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

// Elements iterates over an array's indexes and elements. Other kinds have none.
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
