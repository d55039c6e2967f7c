package strictjson

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// MaxInteger is the largest integer that a known field may have, and -MaxInteger the smallest.
// Every JSON reader represents this range exactly.
const MaxInteger = 9007199254740991

// MaxFaults is the maximum number of faults that are reported for a body.
const MaxFaults = 100

// FaultKind classifies a fault.
type FaultKind uint8

// The kinds of faults.
const (
	Missing   FaultKind = iota + 1 // a required field is absent or null
	Invalid                        // a field has an invalid value
	Malformed                      // a key differs from a known field only in case
)

// Fault is a validation error of a body.
type Fault struct {
	Kind    FaultKind
	Target  string // the field, such as rows[17].amount
	Message string // completes "<Target> …"; never contains the value
}

// Fields reads the members of an object. All Fields that derive from one NewObject share one list
// of faults. A caller decodes the whole body first and then calls Faults. If there are faults, it
// must not use the values.
type Fields struct {
	value  Value
	faults *faults
	base   string // path of the object, or of its array
	index  int    // in that array, or -1
}

// faults collects the faults of a body.
type faults struct {
	list      []Fault
	malformed []Fault

	unknown      uint64 // total bytes of unknown fields
	unknownLimit int
	firstUnknown string // the path of the first unknown field in the text
	firstAt      uint32 // its offset
}

func (f *faults) add(fault Fault) {
	list := &f.list
	if fault.Kind == Malformed {
		list = &f.malformed
	}
	if len(*list) < MaxFaults {
		*list = append(*list, fault)
	}
}

// addUnknown counts the bytes of an unknown field.
func (f *faults) addUnknown(path func() string, start, stop uint32) {
	if f.unknown == 0 || start < f.firstAt {
		f.firstUnknown, f.firstAt = path(), start
	}
	f.unknown += uint64(stop - start)
}

// NewObject starts to decode an object. known are the names of its fields. Keys that differ from a
// known field only in case are faults. Other unknown keys are ignored, up to Limits.UnknownBytes of
// the document.
func NewObject(v Value, known ...string) Fields {
	f := Fields{value: v, faults: &faults{}, index: -1}
	if v.doc != nil {
		f.faults.unknownLimit = v.doc.limits.UnknownBytes
	}
	f.checkNames(known)
	return f
}

// Faults returns the faults found so far, in the order of discovery, at most MaxFaults. If there
// are malformed keys, it returns only those. An excess of unknown fields comes first, under the
// first unknown field's name.
func (f Fields) Faults() []Fault {
	all := f.faults
	switch {
	case len(all.malformed) > 0:
		return all.malformed
	case all.unknownLimit > 0 && all.unknown > uint64(all.unknownLimit):
		excess := Fault{Kind: Invalid, Target: all.firstUnknown, Message: fmt.Sprintf(
			"is an unknown field; unknown fields may hold at most %d bytes in total", all.unknownLimit)}
		return append([]Fault{excess}, all.list[:min(len(all.list), MaxFaults-1)]...)
	}
	return all.list
}

// Path returns the path from the body's root to a field of this object, such as rows[17].amount.
func (f Fields) Path(name string) string {
	if self := f.path(); self != "" {
		return self + "." + name
	}
	return name
}

// path returns the path from the body's root to this object. The root's path is "".
func (f Fields) path() string {
	if f.index >= 0 {
		return elementPath(f.base, f.index)
	}
	return f.base
}

// Invalid records that a field has an invalid value. message completes "<field> …".
func (f Fields) Invalid(name, message string) { f.fault(Invalid, name, message) }

// RequiredString reads a required string. It records the first failed check as the field's fault.
func (f Fields) RequiredString(name string, checks ...func(string) error) string {
	s, ok := f.OptionalString(name, checks...)
	if !ok {
		f.missing(name)
	}
	return s
}

// OptionalString reads a string that may be absent or null. It reports whether the field is
// present, even with an invalid value.
func (f Fields) OptionalString(name string, checks ...func(string) error) (string, bool) {
	v, ok := f.get(name)
	if !ok {
		return "", false
	}
	if v.Kind() != String {
		f.Invalid(name, "must be a string")
		return "", true
	}
	check(f, name, v.Text(), checks)
	return v.Text(), true
}

// RequiredInt reads a required integer literal. It records the first failed check as the field's
// fault.
func (f Fields) RequiredInt(name string, checks ...func(int64) error) int64 {
	n, ok := f.OptionalInt(name, checks...)
	if !ok {
		f.missing(name)
	}
	return n
}

// OptionalInt reads an integer literal that may be absent or null. It reports whether the field is
// present, even with an invalid value.
func (f Fields) OptionalInt(name string, checks ...func(int64) error) (int64, bool) {
	v, ok := f.get(name)
	if !ok {
		return 0, false
	}
	n, ok := parseInteger(v)
	switch {
	case !ok:
		f.Invalid(name, "must be an integer")
		return 0, true
	case n > MaxInteger || n < -MaxInteger:
		f.Invalid(name, outOfRange(n, checks))
		return 0, true
	}
	check(f, name, n, checks)
	return n, true
}

// outOfRange returns the message for an integer outside of the permitted range. It prefers the
// message of the field's own checks, which may know a narrower range.
func outOfRange(n int64, checks []func(int64) error) string {
	for _, c := range checks {
		if err := c(n); err != nil {
			return err.Error()
		}
	}
	return fmt.Sprintf("must be an integer from -%d to %d", MaxInteger, MaxInteger)
}

// OptionalObject reads an object that may be absent or null. known are the names of its fields. The
// second result is false if the field is absent or not an object.
func (f Fields) OptionalObject(name string, known ...string) (Fields, bool) {
	v, ok := f.get(name)
	if !ok {
		return Fields{}, false
	}
	if v.Kind() != Object {
		f.Invalid(name, "must be an object")
		return Fields{}, false
	}
	child := Fields{value: v, faults: f.faults, base: f.Path(name), index: -1}
	child.checkNames(known)
	return child, true
}

// RequiredObjects reads a required array of minLen to maxLen objects. known are the names of their
// fields. The sequence yields the index and the fields of each object. It records faults of
// elements only while it runs, so that a caller must iterate to the end. It ignores elements past
// maxLen.
func (f Fields) RequiredObjects(name string, minLen, maxLen int, known ...string) iter.Seq2[int, Fields] {
	if _, ok := f.get(name); !ok {
		f.missing(name)
	}
	return f.OptionalObjects(name, minLen, maxLen, known...)
}

// OptionalObjects is like RequiredObjects for an array that may be absent or null.
func (f Fields) OptionalObjects(name string, minLen, maxLen int, known ...string) iter.Seq2[int, Fields] {
	v := f.array(name, minLen, maxLen)
	return func(yield func(int, Fields) bool) {
		for i, e := range v.Elements() {
			if i == maxLen {
				return
			}
			child := Fields{value: e, faults: f.faults, base: f.Path(name), index: i}
			if e.Kind() != Object {
				f.Invalid(elementPath(name, i), "must be an object")
				continue
			}
			child.checkNames(known)
			if !yield(i, child) {
				return
			}
		}
	}
}

// OptionalStrings reads an array of at most maxLen strings. It returns nil if the array is absent
// or null.
func (f Fields) OptionalStrings(name string, maxLen int, checks ...func(string) error) []string {
	var list []string
	for i, e := range f.array(name, 0, maxLen).Elements() {
		if i == maxLen {
			break
		}
		if e.Kind() != String {
			f.Invalid(elementPath(name, i), "must be a string")
			continue
		}
		check(f, elementPath(name, i), e.Text(), checks)
		list = append(list, e.Text())
	}
	return list
}

// array returns an array, or the zero Value if there is none. It records a wrong type or length.
func (f Fields) array(name string, minLen, maxLen int) Value {
	v, ok := f.get(name)
	if !ok {
		return Value{}
	}
	if v.Kind() != Array {
		f.Invalid(name, "must be an array")
		return Value{}
	}
	if n := v.Len(); n < minLen || n > maxLen {
		f.Invalid(name, fmt.Sprintf("must have %d to %d elements", minLen, maxLen))
	}
	return v
}

// get returns a member. A null member counts as absent.
func (f Fields) get(name string) (Value, bool) {
	v := f.value.Get(name)
	return v, v.Kind() > Null
}

func (f Fields) missing(name string) { f.fault(Missing, name, "is required") }

func (f Fields) fault(kind FaultKind, name, message string) {
	f.faults.add(Fault{Kind: kind, Target: f.Path(name), Message: message})
}

// check records the first failed check of a value as the field's fault.
func check[T any](f Fields, name string, value T, checks []func(T) error) {
	for _, c := range checks {
		if err := c(value); err != nil {
			f.Invalid(name, err.Error())
			return
		}
	}
}

// checkNames records keys that differ from a known field only in case, and counts the bytes of all
// unknown fields.
func (f Fields) checkNames(known []string) {
	for name, member := range f.value.Members() {
		if slices.Contains(known, name) {
			continue
		}
		n := member.node()
		f.faults.addUnknown(func() string { return memberPath(f.path(), name) }, n.start, n.stop)
		for _, k := range known {
			if strings.EqualFold(name, k) {
				f.fault(Malformed, k, "must be written with exactly this capitalisation")
			}
		}
	}
}

// parseInteger accepts integer literals only, not 1.0, 1e2, "1" or -0. It clamps values outside of
// int64.
func parseInteger(v Value) (int64, bool) {
	literal := v.Text()
	if v.Kind() != Number || literal == "-0" || strings.ContainsAny(literal, ".eE") {
		return 0, false
	}
	n, _ := strconv.ParseInt(literal, 10, 64) // a JSON integer fails only by its range
	return n, true
}

// AtLeast returns a check that an integer is from minimum to MaxInteger.
func AtLeast(minimum int64) func(int64) error {
	return func(n int64) error {
		switch {
		case n < minimum:
			return fmt.Errorf("must be at least %d", minimum)
		case n > MaxInteger:
			return fmt.Errorf("must be an integer from %d to %d", minimum, MaxInteger)
		}
		return nil
	}
}

// Between returns a check that an integer is in a range, both ends inclusive.
func Between(minimum, maximum int64) func(int64) error {
	return func(n int64) error {
		if n < minimum || n > maximum {
			return fmt.Errorf("must be from %d to %d", minimum, maximum)
		}
		return nil
	}
}
