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

// kind is the kind of the value of an argument or a flag. It determines how the text is parsed.
type kind int

const (
	kindText  kind = iota
	kindWhole      // a whole number
	kindTime       // a time as timeUsage says, sent in Unix milliseconds
	kindSpan       // a duration such as 15m, sent in milliseconds
	kindList       // texts separated by commas
	kindJSON       // JSON, or @ and the name of a file that holds JSON
)

// parameter describes a query parameter, a segment of the path or a field of a body, and the flag
// or argument that sets it.
type parameter struct {
	name  string // in the API
	kind  kind
	usage string   // the help of the flag
	oneOf []string // the values of an enum

	examples []string // values that completion offers; others are valid too
	preset   any      // the value that is sent without the flag; nil for none
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

// timeUsage says in the help how a time is written.
const timeUsage = "as RFC 3339, a date, -2h or +2h from now, or Unix ms"

// usageText returns the help of the parameter's flag, with its values or its form.
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
	text  string // "" without the flag
	value any    // as parse returns it; nil without the flag
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

// query returns the value as the text of a query parameter, or "" without the flag.
func (v *parameterValue) query() string {
	if v.value == nil {
		return ""
	}
	return fmt.Sprint(v.value)
}

// parse parses the text of a flag or argument. It returns the value that JSON encodes for the API:
// an int64 for a number, a time or a duration, a []string for a list, a json.RawMessage for JSON,
// else the text.
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

// parseTime parses a time as timeUsage says, and returns Unix milliseconds. A date means midnight
// UTC.
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

// parseJSON returns text if it is JSON. For @FILE it returns the JSON in the file.
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

// valueOrPreset returns the value of the flag, or preset without the flag.
func (v *parameterValue) valueOrPreset() any {
	if v.value == nil {
		return v.preset
	}
	return v.value
}
