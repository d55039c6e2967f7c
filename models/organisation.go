package models

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Organisation is a partner. It owns Sites and API clients. Organisations never see each other's
// data.
type Organisation struct {
	ID        OrganisationID
	Name      string // for operators and customers
	Colour    Colour // of the hosted pages; "": derived from the name
	CreatedAt Millis // in service time
}

// Colour is a colour as CSS writes it: "#rrggbb" in lower case. "" is no colour.
type Colour string

// colourPattern matches a Colour. The column organisations.colour has the same pattern.
var colourPattern = regexp.MustCompile(`^#[0-9a-f]{6}$`)

// ErrColour reports a text that is no colour.
var ErrColour = errors.New("a colour is # and six hexadecimal digits, such as #1f5fae")

// ParseColour parses a colour. It accepts digits of either case; ErrColour for another text.
func ParseColour(text string) (Colour, error) {
	lower := strings.ToLower(text)
	if !colourPattern.MatchString(lower) {
		return "", fmt.Errorf("%q: %w", text, ErrColour)
	}
	return Colour(lower), nil
}
