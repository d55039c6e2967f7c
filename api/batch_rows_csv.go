package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"partnerbilling/models"
)

// contentTypeCSV is that of tables.
const contentTypeCSV = "text/csv;charset=UTF-8"

// rowFields are the names of a row's fields, in the order of models.BatchRowSummary.
var rowFields = []string{
	"rowReference", "customerReference", "amount", "state", "outcome", "correctedOutcome", "settledAt", "attempts",
	"nextAttemptAt",
}

func (b *batches) rowsCSV(ctx context.Context, r *Request) error {
	_, rows, err := b.store.GetBatch(ctx, r.Site.ID, r.Param())
	if err != nil {
		return batchError(err)
	}
	table, err := encodeRows(rows)
	if err != nil {
		return err
	}
	return r.Bytes(http.StatusOK, contentTypeCSV, table)
}

// encodeRows writes rows as RFC 4180 has it. A field without a value is an empty cell.
func encodeRows(rows []models.BatchRow) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	records := make([][]string, 1, len(rows)+1)
	records[0] = rowFields
	for i := range rows {
		row := rows[i].Summary()
		records = append(records, []string{
			textCell(row.RowReference), textCell(row.CustomerReference), strconv.FormatInt(int64(row.Amount), 10),
			string(row.State), string(row.Outcome), string(row.CorrectedOutcome), timeCell(row.SettledAt),
			strconv.Itoa(row.Attempts), timeCell(row.NextAttemptAt),
		})
	}
	if err := w.WriteAll(records); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// formulaStarts begin what a spreadsheet runs as a formula; the wide ones do where a Japanese one reads them.
const formulaStarts = "=+-@\t\r＝＋－＠"

// textCell keeps a spreadsheet from running a partner's text as a formula. White space before it does not.
func textCell(s string) string {
	if strings.ContainsAny(firstOf(s), formulaStarts) || strings.ContainsAny(firstOf(strings.TrimLeftFunc(s, unicode.IsSpace)), formulaStarts) {
		return "'" + s
	}
	return s
}

// firstOf is the first character of a text, "" if there is none.
func firstOf(s string) string {
	for _, c := range s {
		return string(c)
	}
	return ""
}

func timeCell(at models.Millis) string {
	if at == 0 {
		return ""
	}
	return strconv.FormatInt(int64(at), 10)
}
