-- CheckSettings and CheckDurability run this statement. It returns one row for each of the settings
-- that the server knows: its value in this session, and the stored value that new sessions get. The
-- stored value is NULL if none is stored for the role or the database. Behind a pooler the two
-- values may differ.
--
--   $1  text[], names of settings
WITH stored AS (
    -- The settings of this role and this database, the most specific first.
    SELECT lower(split_part(entry, '=', 1)) AS name, substr(entry, strpos(entry, '=') + 1) AS value,
           row_number() OVER (PARTITION BY lower(split_part(entry, '=', 1))
                              ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC) AS precedence
    FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS entry
    WHERE s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
      AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
)
SELECT n.name, p.setting AS session, s.value AS stored, session_user::text AS role, current_database()::text AS database
FROM unnest($1::text[]) AS n (name)
JOIN pg_settings p ON p.name = n.name
LEFT JOIN stored s ON s.name = n.name AND s.precedence = 1
