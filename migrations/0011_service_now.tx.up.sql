-- Service time as a view. Postgres works a function's query out anew at every call; a view becomes part of the statement
-- that reads it, which statements that are run thousands of times a second are grateful for.
CREATE VIEW service_now AS
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms AS now
    FROM service_clock;

CREATE OR REPLACE FUNCTION svc_now() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT now FROM service_now $$;
