package api

import (
	"encoding"
	"errors"
	"slices"
	"strings"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// isOneOf returns a check that accepts exactly the given values.
func isOneOf[T ~string](values []T) func(text string) error {
	return func(text string) error {
		if slices.Contains(values, T(text)) {
			return nil
		}
		names := make([]string, len(values))
		for i, v := range values {
			names[i] = string(v)
		}
		return errors.New("must be one of " + strings.Join(names, ", "))
	}
}

// isID returns a check that accepts the text of an identifier, and decodes it into id.
func isID(id encoding.TextUnmarshaler) func(text string) error {
	return func(text string) error {
		if id.UnmarshalText([]byte(text)) != nil {
			return errors.New("must be an identifier of this service")
		}
		return nil
	}
}

// optionalMillis decodes a point in time in ms of Unix time, nil if the field is absent. Every
// integer up to strictjson.MaxInteger is valid, also one before any data.
func optionalMillis(body strictjson.Fields, name string) *models.Millis {
	n, ok := body.OptionalInt(name)
	if !ok {
		return nil
	}
	at := models.Millis(n)
	return &at
}

// unmarshaler is the pointer type of T, which decodes a T from text.
type unmarshaler[T any] interface {
	*T
	encoding.TextUnmarshaler
}

// parses is the check of a path parameter that must be the text of an ID.
func parses[ID any, P unmarshaler[ID]](text string) error {
	return P(new(ID)).UnmarshalText([]byte(text))
}

// paramID returns the path parameter of a route that checks it with parses.
func paramID[ID any, P unmarshaler[ID]](r *Request) (id ID) {
	_ = P(&id).UnmarshalText([]byte(r.Param())) // never fails: the route has checked the parameter
	return id
}
