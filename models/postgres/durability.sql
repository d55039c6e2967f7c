-- The settings on which the durability of a commit depends: as this session has them, and as the
-- role or the database sets them for every new session. Behind a pooler the two may differ; each
-- must be strong enough.
WITH
-- The settings of this role and this database, the most specific first.
stored AS (
    SELECT lower(split_part(entry, '=', 1)) AS name, split_part(entry, '=', 2) AS value,
           row_number() OVER (PARTITION BY lower(split_part(entry, '=', 1)) ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC) AS precedence
    FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS entry
    WHERE s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
      AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
)
SELECT name, current_setting(name) AS value, 'in a session of role ' || session_user AS origin
FROM unnest(ARRAY['fsync', 'full_page_writes', 'synchronous_commit']) AS name
UNION ALL
SELECT name, value, 'set for role ' || session_user || ' or database ' || current_database()
FROM stored WHERE precedence = 1 AND name = 'synchronous_commit'
