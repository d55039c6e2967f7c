package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"partnerbilling/api/csvtable"
)

// outputFormat is the form in which a command prints the API's data. It is the value of the flag
// --output.
type outputFormat string

// The forms.
const (
	outputTable outputFormat = "table" // aligned columns for people
	outputJSON  outputFormat = "json"  // indented; a list is an array
	outputJSONL outputFormat = "jsonl" // each object on a line
	outputCSV   outputFormat = "csv"   // a header, then a line for each object
)

// outputFormats are the values that --output accepts.
var outputFormats = []string{string(outputTable), string(outputJSON), string(outputJSONL), string(outputCSV)}

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return strings.Join(outputFormats, "|") }

// Set implements pflag.Value.
func (f *outputFormat) Set(text string) error {
	if !slices.Contains(outputFormats, text) {
		return fmt.Errorf("must be one of %s", strings.Join(outputFormats, ", "))
	}
	*f = outputFormat(text)
	return nil
}

// column is a column of a list.
type column struct {
	field string // a path, or several with "|" between them, for object.get; CSV omits the latter
	title string // the heading in a table; "": the table omits the column
}

// printer prints the items of a list, or objects, in an output format. A list needs calls of item
// or value, and then end or abort. An object needs one call of object.
type printer struct {
	out     io.Writer
	format  outputFormat
	columns []column
	width   int        // of the terminal, in columns; 0 for none
	rows    [][]string // of a table, until end prints it
	items   int        // number of items received; in CSV, also of objects
	ended   bool       // end was called
}

// newPrinter returns a printer for standard output, in the format of --output.
func (c *ctl) newPrinter(columns []column) *printer {
	return &printer{out: c.out, format: c.output, columns: columns, width: terminalWidth(c.out)}
}

// item prints an item of a list. For a table it only keeps the item.
func (p *printer) item(raw json.RawMessage) error {
	p.items++
	switch p.format {
	case outputJSON:
		separator := ",\n  "
		if p.items == 1 {
			separator = "[\n  "
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, raw, "  ", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprint(p.out, separator, indented.String())
		return err
	case outputJSONL:
		return printCompact(p.out, raw)
	default:
	}
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	if p.format == outputCSV {
		return p.record(o)
	}
	var row []string
	for _, col := range p.columns {
		if col.title != "" {
			row = append(row, display(col.field, o.get(col.field)))
		}
	}
	p.rows = append(p.rows, row)
	return nil
}

// record prints an object as a line of CSV. Before the first one it prints the header.
func (p *printer) record(o object) error {
	var line []byte
	if p.items == 1 {
		line = p.csvHeader()
	}
	fields := p.csvFields()
	cells := make([]string, len(fields))
	for i, field := range fields {
		value := o.get(field)
		cells[i] = text(value)
		if _, ok := value.(json.Number); !ok {
			cells[i] = csvtable.TextCell(cells[i])
		}
	}
	_, err := p.out.Write(csvtable.AppendRecord(line, cells...))
	return err
}

// csvFields returns the fields of the columns of CSV.
func (p *printer) csvFields() []string {
	var fields []string
	for _, col := range p.columns {
		if !strings.Contains(col.field, "|") {
			fields = append(fields, col.field)
		}
	}
	return fields
}

// csvHeader returns the header line of CSV: the names of the fields.
func (p *printer) csvHeader() []byte { return csvtable.AppendRecord(nil, p.csvFields()...) }

// end prints the rest of a list: the whole table, the closing bracket of JSON, or the header of CSV
// without items.
func (p *printer) end() error {
	p.ended = true
	var err error
	switch p.format {
	case outputJSON:
		closing := "\n]\n"
		if p.items == 0 {
			closing = "[]\n"
		}
		_, err = fmt.Fprint(p.out, closing)
	case outputCSV:
		if p.items == 0 {
			_, err = p.out.Write(p.csvHeader())
		}
	case outputTable:
		var titles []string
		for _, col := range p.columns {
			if col.title != "" {
				titles = append(titles, col.title)
			}
		}
		writeAligned(p.out, append([][]string{titles}, p.rows...), p.width)
	default: // each line is complete
	}
	return err
}

// abort ends a list that an error has interrupted, so that the items before the error are printed.
// It returns the error. It does nothing without an error, and prints nothing without items.
func (p *printer) abort(err error) error {
	if err == nil || p.items == 0 || p.ended {
		return err
	}
	return errors.Join(err, p.end())
}

// object prints one object. In the table format it prints a line for each field, and then a table
// for each list of objects in the object.
func (p *printer) object(raw json.RawMessage) error {
	switch p.format {
	case outputJSONL:
		return printCompact(p.out, raw)
	case outputJSON:
		return printIndented(p.out, raw)
	default:
	}
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	if p.format == outputCSV {
		if len(p.columns) == 0 {
			for _, m := range o {
				p.columns = append(p.columns, column{field: m.name})
			}
		}
		p.items++
		return p.record(o)
	}
	scalars, lists := flatten("", o)
	writeAligned(p.out, scalars, p.width)
	for _, list := range lists {
		p.nested(list)
	}
	return nil
}

// flatten returns the members of an object: its lists of objects as lists, and all others as lines
// of a name and a value. Every name begins with prefix. The members of nested objects have dotted
// names.
func flatten(prefix string, o object) (scalars [][]string, lists []member) {
	for _, m := range o {
		name := prefix + m.name
		switch value := m.value.(type) {
		case object:
			inner, innerLists := flatten(name+".", value)
			scalars, lists = append(scalars, inner...), append(lists, innerLists...)
		case []any:
			if len(value) > 0 {
				if _, ok := value[0].(object); ok {
					lists = append(lists, member{name, value})
					continue
				}
			}
			scalars = append(scalars, []string{name, display(name, value)})
		default:
			scalars = append(scalars, []string{name, display(name, value)})
		}
	}
	return scalars, lists
}

// nested prints a list of objects within an object as a table under its name.
func (p *printer) nested(list member) {
	columns := nestedColumns[list.name]
	table := printer{out: p.out, format: outputTable, columns: columns, width: p.width}
	fmt.Fprintf(p.out, "\n%s:\n", list.name)
	items, _ := list.value.([]any)
	for _, item := range items {
		o, _ := item.(object)
		if len(table.columns) == 0 {
			for _, m := range o {
				table.columns = append(table.columns, column{m.name, strings.ToUpper(m.name)})
			}
		}
		var row []string
		for _, col := range table.columns {
			row = append(row, display(col.field, o.get(col.field)))
		}
		table.rows = append(table.rows, row)
	}
	_ = table.end() // a table has no error
}

// printCompact prints JSON on one line.
func printCompact(out io.Writer, raw json.RawMessage) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, compact.String())
	return err
}

// printIndented prints JSON with indentation.
func printIndented(out io.Writer, raw json.RawMessage) error {
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, indented.String())
	return err
}

// columnGap is the number of spaces between two columns.
const columnGap = 2

// writeAligned writes rows with aligned columns. If width is above 0, it cuts lines to this number
// of columns.
func writeAligned(out io.Writer, rows [][]string, width int) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell)+columnGap))
		}
		text := strings.TrimRight(line.String(), " ")
		if width > 0 {
			text = runewidth.Truncate(text, width, "…")
		}
		fmt.Fprintln(out, text)
	}
}

// value prints an item of a list as item does. The item is a value that encodes to a JSON object.
func (p *printer) value(item any) error {
	encoded, err := json.Marshal(item)
	if err != nil {
		return err
	}
	return p.item(encoded)
}

// printable replaces control characters other than tabs, because they could control the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || 0x7f <= r && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, s)
}

// printableLines does the same as printable, but keeps line breaks.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
