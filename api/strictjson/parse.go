package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many arrays and objects may be open at once, the outermost object included.
const MaxDepth = 32

// Error says why a text is not acceptable JSON. Reason never quotes the text, so it can be shown to its sender.
type Error struct {
	Reason string // completes "the body …"
	Offset int64  // in bytes, near the fault; -1 if it has no place
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset)
}

// Parse reads one JSON object. Every error is an *Error. The Value does not alias data.
func Parse(data []byte) (Value, error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return Value{}, &Error{Reason: "must not start with a byte order mark", Offset: 0}
	}
	p := parser{
		dec:  jsontext.NewDecoder(bytes.NewBuffer(data)),
		text: string(data),
		doc:  make([]node, 0, estimateNodes(data)),
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
	return Value{doc: p.doc}, nil
}

// estimateNodes bounds the number of values from the separators, and by the size, as text can be all separators.
func estimateNodes(data []byte) int {
	n := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("[")) + 1
	return min(n, len(data)/8+8)
}

type parser struct {
	dec  *jsontext.Decoder
	text string // the document; values without escapes are cut from it
	doc  []node

	open    [MaxDepth]int32 // indexes of the containers around the next token
	depth   int
	name    string // the name read last, waiting for its value
	hasName bool
}

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

// step takes the next token.
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
		p.doc[p.open[p.depth]].end = int32(len(p.doc))
		return nil
	default:
		raw, err := p.dec.ReadValue()
		if err != nil {
			return p.fault(err)
		}
		return p.scalar(kind, raw)
	}
}

func (p *parser) begin(kind Kind) error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.fault(err)
	}
	if p.depth == MaxDepth {
		return &Error{Reason: fmt.Sprintf("is nested more than %d levels deep", MaxDepth), Offset: p.dec.InputOffset()}
	}
	p.open[p.depth] = int32(len(p.doc))
	p.depth++
	p.add(kind, "")
	return nil
}

func (p *parser) scalar(kind jsontext.Kind, raw jsontext.Value) error {
	end := p.dec.InputOffset()
	text := p.text[end-int64(len(raw)) : end]
	switch kind {
	case jsontext.KindNull:
		p.add(Null, "")
	case jsontext.KindTrue, jsontext.KindFalse:
		p.add(Bool, text)
	case jsontext.KindNumber:
		p.add(Number, text)
	case jsontext.KindString:
		return p.string(text, end)
	}
	return nil
}

func (p *parser) string(quoted string, end int64) error {
	text := quoted[1 : len(quoted)-1]
	if strings.IndexByte(text, '\\') >= 0 {
		decoded, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil {
			return p.fault(err)
		}
		if bytes.IndexByte(decoded, 0) >= 0 {
			return &Error{Reason: "contains the character NUL", Offset: end}
		}
		text = string(decoded)
	}
	if !p.hasName && p.doc[p.open[p.depth-1]].kind == Object {
		p.name, p.hasName = text, true
		return nil
	}
	p.add(String, text)
	return nil
}

func (p *parser) add(kind Kind, text string) {
	p.doc = append(p.doc, node{name: p.name, text: text, kind: kind, end: int32(len(p.doc)) + 1})
	p.name, p.hasName = "", false
}

// fault words the decoder's error without what it quotes of the text.
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
