package main

import (
	"regexp"
	"slices"
)

// wordGroup is a group of retired words: comments and names must not contain them. One message
// names the substitutes.
type wordGroup struct {
	// names are whole words of camelCase names, in lower case.
	names []string
	// exact are whole names, in their own case.
	exact []string
	// comment matches the words in comments; nil if they also have an ordinary sense in prose.
	comment *regexp.Regexp
	// allowed matches phrases that may contain the words in comments; nil for none.
	allowed *regexp.Regexp
	// allowedNames are names that may contain one of names.
	allowedNames []string
	instead      string // the message: what to write instead
}

// retired lists the words that have better substitutes. Some words, such as "share", also have an
// ordinary sense in prose. They are retired in names only.
var retired = []wordGroup{
	{
		names:   []string{"whoever", "nobody", "somebody", "anybody", "everybody", "someone", "anyone"},
		comment: regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|anybody|everybody|someone|anyone)\b`),
		allowed: regexp.MustCompile("`nobody`|or nobody\\b"), // an account of the operating system
		instead: "name the component or the person",
	},
	{
		names:   []string{"who", "whom"},
		comment: regexp.MustCompile(`(?i)\bwhom?\b`),
		allowed: regexp.MustCompile(
			`(?i)\b(customer|operator|partner|person|people|developer|reader|user)s?( of the \w+)?,? whom?\b`),
		instead: "name the component; only people are \"who\"",
	},
	{
		names:   []string{"place", "places"},
		comment: regexp.MustCompile(`(?i)\bplaces?\b`),
		allowed: regexp.MustCompile(
			`(?i)\bin place of\b|\btakes? place\b|\bplaces? of business\b|\bin (one|no|another) place\b`),
		allowedNames: []string{"place"}, // the ordinal of an element
		instead:      "write slot, permit, position or address",
	},
	{
		names:        []string{"room"},
		comment:      regexp.MustCompile(`(?i)\broom\b`),
		allowedNames: []string{"MinRoom"}, // the capacity below which claiming is skipped
		instead:      "write capacity or space",
	},
	{
		names:   []string{"turn", "turns"},
		comment: regexp.MustCompile(`(?i)\b(a|an|by|its|my|next|of|their|the|this|your) turns?\b`),
		instead: "write slot, permit or order",
	},
	{
		names:   []string{"words", "share", "shares"},
		instead: "name the thing: tokens, text, quota, permits",
	},
	{
		names: []string{"taker", "rester", "doubts", "wish", "wishes", "crowd", "crowded", "ear", "ears", "gather",
			"gatherer", "patience"},
		exact: []string{"atOnce", "AtOnce", "letGo", "LetGo"},
		comment: regexp.MustCompile(
			`(?i)\b(takers?|resters?|doubts|wish(es)?|crowd(s|ed)?|ears?|gather(s|er)?|patience)\b` +
				`|\bletGo\b|\batOnce\b`),
		instead: "use the field's term; see the glossary in models/doc.go",
	},
}

// inName reports whether a name is retired or contains a retired word. parts are the words of the
// name, in lower case.
func (w wordGroup) inName(name string, parts []string) bool {
	if slices.Contains(w.exact, name) {
		return true
	}
	return slices.ContainsFunc(w.names, func(n string) bool { return slices.Contains(parts, n) }) &&
		!slices.Contains(w.allowedNames, name)
}

// inComment returns the first retired word in a comment's text, or "" if there is none.
func (w wordGroup) inComment(text string) string {
	if w.comment == nil {
		return ""
	}
	if w.allowed != nil {
		text = w.allowed.ReplaceAllString(text, "")
	}
	return w.comment.FindString(text)
}
