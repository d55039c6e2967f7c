DROP TABLE sandbox_debits, sandbox_accounts;
