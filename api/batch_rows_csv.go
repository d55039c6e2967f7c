package api

import (
	"context"
	"strconv"

	"partnerbilling/models"
)

// rowFields are the column names, in the order of the fields of models.BatchRowSummary.
var rowFields = []string{
	"rowReference", "customerReference", "amount", "state", "outcome", "correctedOutcome", "settledAt", "attempts",
	"nextAttemptAt",
}

func (b *batches) rowsCSV(ctx context.Context, r *Request) error {
	_, rows, err := b.store.GetBatch(ctx, r.Site.ID, r.Param())
	if err != nil {
		return batchError(err)
	}
	return r.CSV("batch-"+r.Param(), encodeRows(rows))
}

// encodeRows writes rows as CSV. A field without a value is an empty cell.
func encodeRows(rows []models.BatchRow) []byte {
	const rowSize = 128 // bytes, an estimate
	table := appendRecord(make([]byte, 0, rowSize*(len(rows)+1)), rowFields...)
	for i := range rows {
		row := rows[i].Summary()
		table = appendRecord(table,
			textCell(row.RowReference), textCell(row.CustomerReference), strconv.FormatInt(int64(row.Amount), 10),
			string(row.State), string(row.Outcome), string(row.CorrectedOutcome), timeCell(row.SettledAt),
			strconv.Itoa(row.Attempts), timeCell(row.NextAttemptAt))
	}
	return table
}

func timeCell(at models.Millis) string {
	if at == 0 {
		return ""
	}
	return strconv.FormatInt(int64(at), 10)
}
