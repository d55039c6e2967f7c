package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is the maximum nesting depth of arrays and objects, including the outermost object.
const MaxDepth = 32

// Error reports a text that is not acceptable JSON. Reason never quotes the text, so the service
// can return it to the sender.
type Error struct {
	Reason string // completes "the body …"
	Offset int64  // in bytes, near the fault; -1 if unknown
}

// Error returns the reason, with the offset if it is known.
func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset)
}

// Limits bounds the content of a document. Zero means no limit.
type Limits struct {
	// Values is the maximum number of objects, arrays and scalars. Keys do not count.
	Values int
	// UnknownBytes is the maximum total size of fields that no decoder knows. A field extends from
	// its name to the end of its value. Fields.Faults reports an excess.
	UnknownBytes int
}

// Parse parses a JSON object like ParseWithin, without Limits.
func Parse(data []byte) (Value, error) { return ParseWithin(data, Limits{}) }

// ParseWithin parses a JSON object within limits. It stops at the first value beyond Limits.Values.
// Every error is an *Error. The Value does not alias data.
func ParseWithin(data []byte, limits Limits) (Value, error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return Value{}, &Error{Reason: "must not start with a byte order mark", Offset: 0}
	}
	if len(data) > math.MaxInt32 { // nodes hold offsets of 32 bits
		return Value{}, &Error{Reason: "is too long", Offset: -1}
	}
	expected := estimateNodes(data)
	if limits.Values > 0 && expected > limits.Values {
		if countValues(data, limits.Values) > limits.Values {
			return Value{}, tooManyValues(limits.Values)
		}
		expected = limits.Values // the surplus comes from strings and empty containers
	}
	p := parser{
		dec:    jsontext.NewDecoder(bytes.NewBuffer(data)),
		data:   data,
		limits: limits,
		nodes:  make([]node, 0, expected),
	}
	if p.dec.PeekKind() != jsontext.KindBeginObject {
		if _, err := p.dec.ReadValue(); err != nil && !errors.Is(err, io.EOF) {
			return Value{}, p.fault(err)
		}
		return Value{}, &Error{Reason: "must be one JSON object", Offset: -1}
	}
	if err := p.parse(); err != nil {
		return Value{}, err
	}
	return Value{doc: &document{nodes: p.nodes, text: string(data), decoded: string(p.decoded), limits: limits}}, nil
}

func tooManyValues(limit int) *Error {
	return &Error{Reason: fmt.Sprintf("has more than %d values", limit), Offset: -1}
}

// estimateNodes returns an upper bound of the number of values, from the separators and the size.
func estimateNodes(data []byte) int {
	n := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("[")) + 1
	return min(n, len(data)/2+1)
}

// countValues counts the values of a JSON text without allocating. It stops at one above the limit.
// It counts separators, so a malformed text may be refused for too many values.
func countValues(data []byte, limit int) int {
	n := 1
	for i := 0; i < len(data) && n <= limit; i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i)
		case ',':
			n++
		case '{', '[':
			if rest := bytes.TrimLeft(data[i+1:], " \t\r\n"); len(rest) > 0 && rest[0] != '}' && rest[0] != ']' {
				n++
			}
		}
	}
	return n
}

// endOfString returns the index of the closing quote of the string that opens at i, or an index
// past the end of data if it is not closed.
func endOfString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

// parser builds the nodes of a document from the tokens of dec.
type parser struct {
	dec     *jsontext.Decoder
	data    []byte // the document
	decoded []byte // the decoded strings that had escapes
	nodes   []node
	limits  Limits

	open    [MaxDepth]int32 // indexes of the open containers
	depth   int
	name    span   // the name whose value comes next
	start   uint32 // byte offset of that name
	hasName bool
}

// parse reads the outermost object, and refuses anything after it.
func (p *parser) parse() error {
	for {
		if err := p.step(); err != nil {
			return err
		}
		if p.depth == 0 {
			break
		}
	}
	switch _, err := p.dec.ReadToken(); {
	case err == nil:
		return &Error{Reason: "must be one JSON object, with nothing after it", Offset: p.dec.InputOffset()}
	case !errors.Is(err, io.EOF):
		return p.fault(err)
	}
	return nil
}

// step reads the next token into nodes.
func (p *parser) step() error {
	switch kind := p.dec.PeekKind(); kind {
	case jsontext.KindBeginObject:
		return p.begin(Object)
	case jsontext.KindBeginArray:
		return p.begin(Array)
	case jsontext.KindEndObject, jsontext.KindEndArray:
		if _, err := p.dec.ReadToken(); err != nil {
			return p.fault(err)
		}
		p.depth--
		container := &p.nodes[p.open[p.depth]]
		container.end, container.stop = int32(len(p.nodes)), uint32(p.dec.InputOffset())
		return nil
	default:
		raw, err := p.dec.ReadValue()
		if err != nil {
			return p.fault(err)
		}
		return p.scalar(kind, len(raw))
	}
}

// begin reads the opening bracket of a container.
func (p *parser) begin(kind Kind) error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.fault(err)
	}
	offset := p.dec.InputOffset()
	if p.depth == MaxDepth {
		return &Error{Reason: fmt.Sprintf("is nested more than %d levels deep", MaxDepth), Offset: offset}
	}
	p.open[p.depth] = int32(len(p.nodes))
	p.depth++
	return p.add(node{kind: kind, start: uint32(offset - 1)})
}

// scalar adds the scalar of n bytes that was read last. A string that is a member's name is kept
// for the next value instead.
func (p *parser) scalar(kind jsontext.Kind, n int) error {
	stop := uint32(p.dec.InputOffset())
	start := stop - uint32(n)
	value := node{start: start, stop: stop, text: span{start, stop - start}}
	switch kind {
	case jsontext.KindNull:
		value.kind, value.text = Null, span{}
	case jsontext.KindTrue, jsontext.KindFalse:
		value.kind = Bool
	case jsontext.KindNumber:
		value.kind = Number
	case jsontext.KindString:
		text, err := p.unquote(start, stop)
		if err != nil {
			return err
		}
		if !p.hasName && p.nodes[p.open[p.depth-1]].kind == Object {
			p.name, p.start, p.hasName = text, start, true
			return nil
		}
		value.kind, value.text = String, text
	}
	return p.add(value)
}

// unquote returns the content of a quoted string, with escapes decoded.
func (p *parser) unquote(start, stop uint32) (span, error) {
	quoted := p.data[start:stop]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return span{start + 1, stop - start - 2}, nil
	}
	at := len(p.decoded)
	decoded, err := jsontext.AppendUnquote(p.decoded, quoted)
	if err != nil {
		return span{}, p.fault(err)
	}
	if bytes.IndexByte(decoded[at:], 0) >= 0 {
		return span{}, &Error{Reason: "contains the character NUL", Offset: int64(stop)}
	}
	p.decoded = decoded
	return span{uint32(len(p.data) + at), uint32(len(decoded) - at)}, nil
}

// add appends a node, under the name that was read before it if there is one.
func (p *parser) add(value node) error {
	if p.limits.Values > 0 && len(p.nodes) == p.limits.Values {
		return tooManyValues(p.limits.Values)
	}
	if p.hasName {
		value.name, value.start = p.name, p.start
	}
	value.end = int32(len(p.nodes)) + 1
	p.nodes = append(p.nodes, value)
	p.name, p.hasName = span{}, false
	return nil
}

// fault converts the decoder's error to an Error that does not quote the text.
func (p *parser) fault(err error) error {
	offset := p.dec.InputOffset()
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		offset = syntactic.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Reason: "has an object with a duplicate key", Offset: offset}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Error{Reason: "is not complete JSON", Offset: offset}
	default:
		return &Error{Reason: "is not valid JSON in UTF-8", Offset: offset}
	}
}
