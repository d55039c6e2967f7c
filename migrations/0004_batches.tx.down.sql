DROP TABLE ledger_entries, batch_rows, batches;
DROP TYPE ledger_account, row_outcome, row_state, batch_state;
