package strictjson

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the canonical form of a value. Two texts have the same form if they differ only
// in white space, in the order of members, or in the escapes of strings. The form has no white
// space, and sorts members by the code points of their names. It keeps the order of elements and
// the literals of numbers: 1 and 1.0 differ. It does not normalise Unicode.
func Canonical(v Value) []byte {
	var c canonicaliser
	size := 0
	if v.doc != nil {
		for _, n := range v.doc.nodes[v.at:v.node().end] {
			size += int(n.name.length+n.text.length) + 6
		}
	}
	return c.append(make([]byte, 0, size), v)
}

// canonicaliser appends canonical forms to a buffer.
type canonicaliser struct {
	members []Value // stack of the open objects' members
}

func (c *canonicaliser) append(dst []byte, v Value) []byte {
	switch v.Kind() {
	case Object:
		return c.appendObject(dst, v)
	case Array:
		dst = append(dst, '[')
		for i, e := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.append(dst, e)
		}
		return append(dst, ']')
	case String:
		return appendString(dst, v.Text())
	case Number, Bool:
		return append(dst, v.Text()...)
	default:
		return append(dst, "null"...)
	}
}

func (c *canonicaliser) appendObject(dst []byte, v Value) []byte {
	base := len(c.members)
	c.members = appendSorted(c.members, v)
	end := len(c.members)
	dst = append(dst, '{')
	for i := base; i < end; i++ {
		if i > base {
			dst = append(dst, ',')
		}
		member := c.members[i]
		dst = append(appendString(dst, member.name()), ':')
		dst = c.append(dst, member)
	}
	c.members = c.members[:base]
	return append(dst, '}')
}

// appendSorted appends an object's members, sorted by the code points of their names. UTF-8 has the
// same order.
func appendSorted(dst []Value, object Value) []Value {
	base := len(dst)
	for _, member := range object.Members() {
		dst = append(dst, member)
	}
	slices.SortFunc(dst[base:], func(a, b Value) int { return cmp.Compare(a.name(), b.name()) })
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // fails only on invalid UTF-8, which Parse refuses
	return dst
}
