package api

import (
	"context"
	"strconv"

	"partnerbilling/api/csvtable"
	"partnerbilling/models"
)

// rowFields are the column names of the CSV, in the order of the fields of models.BatchRowSummary.
var rowFields = []string{
	"rowReference", "customerReference", "amount", "state", "outcome", "correctedOutcome", "settledAt", "attempts",
	"nextAttemptAt",
}

// rowsCSV answers with the rows of the batch in the path as a CSV file. It may read the replica.
func (b *batches) rowsCSV(ctx context.Context, r *Request) error {
	table, err := b.reader.table(models.ReadReplica(ctx), r)
	if err != nil {
		return err
	}
	return r.CSV("batch-"+r.Param(), table)
}

// encodeRows writes rows as CSV below a line of column names. Amounts are in minor units, times in
// ms of Unix time. A field without a value is an empty cell.
func encodeRows(rows []models.BatchRow) []byte {
	const rowSize = 128 // bytes, an estimate
	table := csvtable.AppendRecord(make([]byte, 0, rowSize*(len(rows)+1)), rowFields...)
	for i := range rows {
		row := rows[i].Summary()
		table = csvtable.AppendRecord(table,
			csvtable.TextCell(row.RowReference), csvtable.TextCell(row.CustomerReference),
			strconv.FormatInt(int64(row.Amount), 10),
			string(row.State), string(row.Outcome), string(row.CorrectedOutcome), timeCell(row.SettledAt),
			strconv.Itoa(row.Attempts), timeCell(row.NextAttemptAt))
	}
	return table
}
