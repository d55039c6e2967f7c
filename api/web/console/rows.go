package console

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"partnerbilling/models"
)

// batchRow is a row of a batch as it was typed.
type batchRow struct{ Customer, Row, Amount string }

// rowColumns are the columns of a table of rows, in the order of a table without a header.
var rowColumns = []string{"customerReference", "rowReference", "amount"}

// wire returns the row as the API takes it.
func (r batchRow) wire() map[string]any {
	return object("customerReference", r.Customer, "rowReference", r.Row, "amount", literal(r.Amount))
}

// cents returns the amount of a row that the API has accepted, in cents.
func (r batchRow) cents() models.Amount {
	n, _ := strconv.ParseInt(strings.TrimSpace(r.Amount), 10, 64)
	return models.Amount(n)
}

// readRows reads a table with commas, semicolons or tabs between its columns. A first line that
// names the columns sets their order; other columns are left out.
func readRows(text string) ([]batchRow, error) {
	text = strings.TrimPrefix(text, "\uFEFF")
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	reader := csv.NewReader(strings.NewReader(text))
	reader.Comma, reader.FieldsPerRecord, reader.TrimLeadingSpace = separator(first), -1, true
	lines, err := reader.ReadAll()
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		return nil, fmt.Errorf("line %d of the rows cannot be read as CSV", syntax.Line)
	}
	if err != nil {
		return nil, errors.New("the rows cannot be read as CSV")
	}
	columns, lines, err := findColumns(lines)
	if err != nil {
		return nil, err
	}
	rows := make([]batchRow, 0, len(lines))
	for _, line := range lines {
		cell := func(column int) string {
			if at := columns[column]; at < len(line) {
				return line[at]
			}
			return ""
		}
		rows = append(rows, batchRow{cell(0), cell(1), cell(2)})
	}
	return rows, nil
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

// findColumns finds the index of each column, and drops the header if there is one.
func findColumns(lines [][]string) ([]int, [][]string, error) {
	columns := []int{0, 1, 2}
	if len(lines) == 0 {
		return columns, nil, nil
	}
	header := make([]string, len(lines[0]))
	for i, cell := range lines[0] {
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

func pad(n int) string { return fmt.Sprintf("%03d", n) }

func decimal(m models.Millis) string { return strconv.FormatInt(int64(m), 10) }
