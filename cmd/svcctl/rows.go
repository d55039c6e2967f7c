package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"partnerbilling/api/client"
)

// rowFormat says how a CSV file of debits is written.
type rowFormat struct {
	Decimal bool // amounts are in major units, with up to two decimals; else in minor units
	Trim    bool // white space around references is not part of them
}

// columnNames maps each name that a column may have to a field of a row. The names in a file may
// also differ in case, spaces, hyphens and underscores.
var columnNames = map[string]string{
	"customerreference": "customerReference", "customerref": "customerReference", "customer": "customerReference",
	"rowreference": "rowReference", "rowref": "rowReference", "row": "rowReference", "reference": "rowReference",
	"amount": "amount",
}

// fields are the fields of a row. A file must have a column for each.
var fields = []string{"customerReference", "rowReference", "amount"}

// maxShownFaults is the maximum number of faults that an error lists.
const maxShownFaults = 20

// fileFaults is an error that holds all faults of a CSV file, in the order of their lines.
type fileFaults []string

func (f fileFaults) Error() string {
	shown := f[:min(len(f), maxShownFaults)]
	text := strings.Join(shown, "\n")
	if more := len(f) - len(shown); more > 0 {
		text += fmt.Sprintf("\nand %d more faults", more)
	}
	return text
}

// byteOrderMark is the character with which spreadsheets begin a file in UTF-8.
const byteOrderMark = "\ufeff"

// readRows reads the rows of a batch from CSV in UTF-8 with a header line. The separator is a
// comma, a semicolon or a tab. The returned amounts are in minor units. A fileFaults error holds
// every fault with its line, up to the first malformed CSV.
func readRows(in io.Reader, format rowFormat) ([]client.Row, error) {
	buffered := bufio.NewReader(in)
	start, err := buffered.Peek(len(byteOrderMark))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.HasPrefix(start, []byte{0xff, 0xfe}) || bytes.HasPrefix(start, []byte{0xfe, 0xff}):
		return nil, errors.New("the file is UTF-16; save it as CSV in UTF-8")
	case bytes.HasPrefix(start, []byte("PK")):
		return nil, errors.New("the file is a spreadsheet or an archive; save it as CSV in UTF-8")
	case string(start) == byteOrderMark:
		_, _ = buffered.Discard(len(byteOrderMark))
	}
	header, err := buffered.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	separator := separatorOf(header)
	reader := csv.NewReader(io.MultiReader(strings.NewReader(header), buffered))
	reader.Comma, reader.FieldsPerRecord = separator, -1
	names, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	}
	if err != nil {
		return nil, err
	}
	columns, err := columnsOf(names)
	if err != nil {
		return nil, err
	}
	table := rowTable{format: format, columns: columns, width: len(names), lines: map[string]int{}}
	return table.read(reader)
}

// separatorOf returns the separator that splits the header into the most columns.
func separatorOf(header string) rune {
	return slices.MaxFunc([]rune{',', ';', '\t'}, func(a, b rune) int {
		return cmp.Compare(strings.Count(header, string(a)), strings.Count(header, string(b)))
	})
}

// columnsOf returns the index of each field's column, from the names in the header. It ignores
// other columns.
func columnsOf(names []string) (map[string]int, error) {
	columns := map[string]int{}
	var faults fileFaults
	for i, name := range names {
		plain := strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(strings.TrimSpace(name)))
		field, ok := columnNames[plain]
		if !ok {
			continue
		}
		if _, twice := columns[field]; twice {
			faults = append(faults, fmt.Sprintf("line 1: two columns are the %s", field))
		}
		columns[field] = i
	}
	for _, field := range fields {
		if _, ok := columns[field]; !ok {
			faults = append(faults, fmt.Sprintf("line 1: the column %s is missing", field))
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return columns, nil
}

// rowTable reads a CSV file after its header.
type rowTable struct {
	format  rowFormat
	columns map[string]int // the index of each field's column
	width   int            // number of columns
	lines   map[string]int // the line of each row reference
	faults  fileFaults     // found so far
}

// read returns all rows, or all faults.
func (t *rowTable) read(reader *csv.Reader) ([]client.Row, error) {
	var rows []client.Row
	for {
		cells, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // malformed CSV: where the next row begins is unknown
			t.faults = append(t.faults, err.Error())
			break
		}
		line, _ := reader.FieldPos(0)
		rows = append(rows, t.row(line, cells))
	}
	switch {
	case len(t.faults) > 0:
		return nil, t.faults
	case len(rows) == 0:
		return nil, errors.New("the file has no rows")
	}
	return rows, nil
}

// row returns the row of a line of the file, and adds its faults to t.faults.
func (t *rowTable) row(line int, cells []string) client.Row {
	fault := func(format string, values ...any) {
		t.faults = append(t.faults, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, values...))
	}
	if len(cells) != t.width {
		fault("it has %d columns, the header has %d", len(cells), t.width)
		return client.Row{}
	}
	cell := func(field string) string {
		text := cells[t.columns[field]]
		if !utf8.ValidString(text) {
			fault("the %s is not UTF-8", field)
		}
		if t.format.Trim {
			text = strings.TrimSpace(text)
		}
		if text == "" {
			fault("the %s is empty", field)
		}
		return text
	}
	row := client.Row{CustomerReference: cell("customerReference"), RowReference: cell("rowReference")}
	if first, twice := t.lines[row.RowReference]; twice {
		fault("the rowReference is that of line %d", first)
	}
	t.lines[row.RowReference] = line
	amount, err := t.format.amount(cells[t.columns["amount"]])
	if err != nil {
		fault("%v", err)
	}
	row.Amount = amount
	return row
}

// amount parses an amount and returns it in minor units. The decimal separator is a point or a
// comma.
func (f rowFormat) amount(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if !f.Decimal {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("the amount %q is not a whole number of minor units, at least 1; "+
				"for 12.50 use --decimal", text)
		}
		return n, nil
	}
	whole, fraction, _ := strings.Cut(strings.Replace(text, ",", ".", 1), ".")
	major, err := strconv.ParseUint(whole, 10, 63)
	minor, fractionErr := strconv.ParseUint((fraction + "00")[:max(2, len(fraction))], 10, 63)
	if err != nil || fractionErr != nil || len(fraction) > 2 || major > math.MaxInt64/100-1 || major+minor == 0 {
		return 0, fmt.Errorf("the amount %q is not a number with up to two decimals, such as 12.50", text)
	}
	return int64(major*100 + minor), nil //nolint:gosec // bounded above
}
