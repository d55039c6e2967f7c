package console

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"partnerbilling/models"
)

// batchRow is a row of a new batch, as it was typed into a table.
type batchRow struct {
	Customer, Row, Amount string
	Line                  int // in the table, from 1
}

// rowColumns are the columns of a table of rows, in the order of a table without a header.
var rowColumns = []string{"customerReference", "rowReference", "amount"}

// wire returns the row as the API takes it.
func (r batchRow) wire() map[string]any {
	return object("customerReference", r.Customer, "rowReference", r.Row, "amount", literal(r.Amount))
}

// cents returns the amount of a row that the API has accepted.
func (r batchRow) cents() models.Amount {
	n, _ := strconv.ParseInt(strings.TrimSpace(r.Amount), 10, 64)
	return models.Amount(n)
}

// tableLine is a line of a table, split into cells.
type tableLine struct {
	number int // from 1
	cells  []string
}

// readRows reads a table with commas, semicolons or tabs between its columns. A first line with the
// names of columns sets their order. Columns with other names are ignored.
func readRows(text string) ([]batchRow, error) {
	lines, err := readLines(strings.TrimPrefix(text, "\uFEFF"))
	if err != nil {
		return nil, err
	}
	columns, lines, err := findColumns(lines)
	if err != nil {
		return nil, err
	}
	rows := make([]batchRow, 0, len(lines))
	for _, line := range lines {
		cell := func(column int) string {
			if at := columns[column]; at < len(line.cells) {
				return line.cells[at]
			}
			return ""
		}
		rows = append(rows, batchRow{cell(0), cell(1), cell(2), line.number})
	}
	return rows, nil
}

// readLines reads the lines of a table, and skips empty ones.
func readLines(text string) (lines []tableLine, err error) {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	reader := csv.NewReader(strings.NewReader(text))
	reader.Comma, reader.FieldsPerRecord, reader.TrimLeadingSpace = separator(first), -1, true
	for {
		cells, err := reader.Read()
		var syntax *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return lines, nil
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("line %d of the rows cannot be read as CSV", syntax.Line)
		case err != nil:
			return nil, errors.New("the rows cannot be read as CSV")
		}
		number, _ := reader.FieldPos(0)
		lines = append(lines, tableLine{number, cells})
	}
}

// separator returns the separator that occurs most often in a line, a comma if none occurs.
func separator(line string) rune {
	best, most := ',', 0
	for _, candidate := range ",;\t" {
		if n := strings.Count(line, string(candidate)); n > most {
			best, most = candidate, n
		}
	}
	return best
}

// findColumns returns the index of each of rowColumns in the lines, and the lines without the
// header. A header is a first line with a cell "amount".
func findColumns(lines []tableLine) ([]int, []tableLine, error) {
	columns := []int{0, 1, 2}
	if len(lines) == 0 {
		return columns, nil, nil
	}
	header := make([]string, len(lines[0].cells))
	for i, cell := range lines[0].cells {
		header[i] = strings.ToLower(strings.TrimSpace(cell))
	}
	if !slices.Contains(header, "amount") {
		return columns, lines, nil
	}
	for i, name := range rowColumns {
		if columns[i] = slices.Index(header, strings.ToLower(name)); columns[i] < 0 {
			return nil, nil, fmt.Errorf("the header of the rows has no column %s", name)
		}
	}
	return columns, lines[1:], nil
}

// rowPath matches the path of a row's field in the faults of the API.
var rowPath = regexp.MustCompile(`rows\[(\d+)\]\.(\w+)`)

// nameLines replaces the indexes of rows in the messages of faults by the lines of the table. It
// explains amounts that have a decimal point.
func nameLines(faults []fault, rows []batchRow) []fault {
	row := func(index string) (r batchRow) {
		if i, err := strconv.Atoi(index); err == nil && i < len(rows) {
			return rows[i]
		}
		return r
	}
	named := make([]fault, len(faults))
	for i, f := range faults {
		f.Message = rowPath.ReplaceAllStringFunc(f.Message, func(path string) string {
			parts := rowPath.FindStringSubmatch(path)
			return fmt.Sprintf("%s in line %d", parts[2], row(parts[1]).Line)
		})
		parts := rowPath.FindStringSubmatch(f.Target)
		if len(parts) > 0 && parts[2] == "amount" && strings.ContainsAny(row(parts[1]).Amount, ".,") {
			f.Message += ". Amounts are in cents: 1250 is AUD 12.50"
		}
		named[i] = f
	}
	return named
}

// writeRows returns a table that readRows reads.
func writeRows(rows []batchRow) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(rowColumns) // a strings.Builder never fails
	for _, r := range rows {
		_ = w.Write([]string{r.Customer, r.Row, r.Amount})
	}
	w.Flush()
	return b.String()
}

// pad returns n with at least three digits.
func pad(n int) string { return fmt.Sprintf("%03d", n) }

// decimal returns the Unix milliseconds as text.
func decimal(m models.Millis) string { return strconv.FormatInt(int64(m), 10) }
