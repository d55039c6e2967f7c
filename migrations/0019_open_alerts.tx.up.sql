-- Open alerts of one kind, for counting them. alerts_open is in order of time, for listing them.
CREATE INDEX alerts_open_by_kind ON alerts (kind) WHERE closed_at IS NULL;
