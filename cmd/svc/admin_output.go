package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"partnerbilling/models"
)

// table prints rows in aligned columns under a heading. Tabs separate the titles of the heading.
// fill calls row with the cells of each row.
func (p *program) table(heading string, fill func(row func(...any))) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	fill(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = fmt.Sprint(c)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	})
	return w.Flush()
}

// printJSON prints a value as indented JSON.
func (p *program) printJSON(value any) error {
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(value)
}

// printable quotes a text that contains quotation marks, or characters that would break a table.
// Texts of partners and gateways may contain them.
func printable(text string) string {
	if quoted := fmt.Sprintf("%q", text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// orEmpty returns an id's text, or "" for the zero id.
func orEmpty[N models.Noun](id models.ID[N]) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// formatTime formats a time for operators: in UTC, to the second. It returns "" for 0.
func formatTime(at models.Millis) string {
	if at == 0 {
		return ""
	}
	return at.Time().Format("2006-01-02 15:04:05Z")
}
