DROP INDEX alerts_open_by_kind;
