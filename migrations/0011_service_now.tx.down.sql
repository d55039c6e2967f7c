CREATE OR REPLACE FUNCTION svc_now() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms
    FROM service_clock
$$;
DROP VIEW service_now;
