package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// kind is the kind of an argument's or a flag's value.
type kind int

const (
	kindText  kind = iota
	kindWhole      // a whole number
	kindTime       // Unix milliseconds; also RFC 3339, a date, or a duration from now
	kindSpan       // a duration, sent in milliseconds
	kindList       // texts separated by commas
	kindJSON       // JSON, or the name of a file that holds it after an @
)

// parameter is a query parameter or a field of a body.
type parameter struct {
	name  string // as the API has it
	kind  kind
	usage string
	oneOf []string // the values of an enum

	examples []string // values that completion offers; others are valid too
	preset   any      // sent without the flag; nil for nothing
}

// flag returns the name of the parameter's flag: invitedFrom becomes invited-from.
func (p parameter) flag() string {
	var b strings.Builder
	for _, r := range p.name {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// timeUsage says how a time is written.
const timeUsage = "as RFC 3339, a date, -2h or +2h from now, or Unix ms"

// usageText returns the help of the parameter's flag.
func (p parameter) usageText() string {
	switch {
	case len(p.oneOf) > 0:
		return p.usage + ": " + strings.Join(p.oneOf, ", ")
	case p.kind == kindTime:
		return p.usage + ", " + timeUsage
	}
	return p.usage
}

// parameterValue is the value of a parameter's flag. It implements pflag.Value.
type parameterValue struct {
	parameter
	text  string
	value any // as it is sent in JSON
}

// String implements pflag.Value.
func (v *parameterValue) String() string { return v.text }

// Type implements pflag.Value.
func (v *parameterValue) Type() string {
	return [...]string{"text", "number", "time", "duration", "list", "json"}[v.kind]
}

// Set implements pflag.Value.
func (v *parameterValue) Set(text string) (err error) {
	v.text = text
	v.value, err = v.parse(text, time.Now())
	return err
}

// query returns the value as a query parameter; "" without the flag.
func (v *parameterValue) query() string {
	if v.value == nil {
		return ""
	}
	return fmt.Sprint(v.value)
}

// parse returns a value as it is sent in JSON.
func (p parameter) parse(text string, now time.Time) (any, error) {
	if len(p.oneOf) > 0 && p.kind == kindText && !slices.Contains(p.oneOf, text) {
		return nil, fmt.Errorf("must be one of %s", strings.Join(p.oneOf, ", "))
	}
	switch p.kind {
	case kindWhole:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	case kindTime:
		return parseTime(text, now)
	case kindSpan:
		span, err := time.ParseDuration(text)
		if err != nil || span < 0 {
			return nil, fmt.Errorf("%q is not a duration such as 90s, 15m or 24h", text)
		}
		return span.Milliseconds(), nil
	case kindList:
		return strings.Split(text, ","), nil
	case kindJSON:
		return parseJSON(text)
	default:
		return text, nil
	}
}

// parseTime returns a time in Unix milliseconds.
func parseTime(text string, now time.Time) (int64, error) {
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		if span, err := time.ParseDuration(text); err == nil {
			return now.Add(span).UnixMilli(), nil
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("%q is not a time: write it %s", text, timeUsage)
}

// parseJSON returns a text of JSON or, for @FILE, the JSON in the file.
func parseJSON(text string) (json.RawMessage, error) {
	content := []byte(text)
	if name, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if content, err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	if !json.Valid(content) {
		return nil, fmt.Errorf("%.60q is not JSON; write @FILE for that of a file", text)
	}
	return content, nil
}

// addFlags adds a flag for each parameter, and returns their values.
func (c *ctl) addFlags(cmd *cobra.Command, parameters []parameter) []*parameterValue {
	values := make([]*parameterValue, len(parameters))
	for i, p := range parameters {
		values[i] = &parameterValue{parameter: p}
		cmd.Flags().Var(values[i], p.flag(), p.usageText())
		if known := slices.Concat(p.oneOf, p.examples); len(known) > 0 {
			c.complete(cmd, p.flag(), cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	return values
}

// valueOrPreset returns the flag's value, or what is sent without the flag.
func (v *parameterValue) valueOrPreset() any {
	if v.value == nil {
		return v.preset
	}
	return v.value
}
