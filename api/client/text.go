package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"unicode/utf8"
)

// ErrNotUTF8 reports text that is not UTF-8. JSON cannot hold such text: encoding/json would
// silently replace the invalid bytes, and the request could name another customer or batch.
var ErrNotUTF8 = errors.New("client: the text is not UTF-8")

// checkText returns an error that wraps ErrNotUTF8 if a text of the request is not UTF-8. The error
// names the path, the header or the field of the body.
func (r *request) checkText() error {
	// An invalid path is left to http.NewRequest.
	if decoded, err := url.PathUnescape(r.path); err == nil && !utf8.ValidString(decoded) {
		return fmt.Errorf("%w: the path %+q", ErrNotUTF8, decoded)
	}
	for name, values := range r.header {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return fmt.Errorf("%w: the header %s", ErrNotUTF8, name)
			}
		}
	}
	if path := invalidText(reflect.ValueOf(r.body)); path != nil {
		return fmt.Errorf("%w: %s of the request", ErrNotUTF8, *path)
	}
	return nil
}

// decode decodes JSON. what names the text in errors.
func decode(what string, body []byte, into any) error {
	if !utf8.Valid(body) {
		return fmt.Errorf("%w: %s", ErrNotUTF8, what)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("client: %s is not JSON: %w", what, err)
	}
	return nil
}

// invalidText returns the path to the first string in a body that is not UTF-8, nil if there is
// none. The path of the body itself is "". A body must not have cycles.
func invalidText(v reflect.Value) *string {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return new(string)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return invalidText(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if path := invalidText(v.Field(i)); path != nil {
				return under("."+v.Type().Field(i).Name, path)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 { // json.RawMessage
			if v.Kind() == reflect.Slice && !utf8.Valid(v.Bytes()) {
				return new(string)
			}
			return nil
		}
		for i := range v.Len() {
			if path := invalidText(v.Index(i)); path != nil {
				return under(fmt.Sprintf("[%d]", i), path)
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if invalidText(entries.Key()) != nil {
				return under("a key", new(string))
			}
			if path := invalidText(entries.Value()); path != nil {
				return under(fmt.Sprintf("[%q]", entries.Key()), path)
			}
		}
	default: // numbers and booleans hold no text
	}
	return nil
}

// under prepends a step to a path.
func under(step string, path *string) *string {
	joined := step + *path
	return &joined
}
