-- The privileges and settings of the service's database roles. Grants (grants.go) replaces the
-- words that begin with a colon: the names of the roles, and the statements of their settings. A
-- superuser, or an owner that may alter the roles, runs the script after every `svc migrate up`.
-- Repetition changes nothing.
BEGIN;

-- Only the owner changes the schema.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
DO $$ BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO :runtime, :read', current_database());
END $$;

-- The runtime role reads and writes rows. It changes the schema only by the functions that make and
-- drop partitions. It cannot change the list of migrations or the entries of the audit log. It can
-- append entries to the audit log.
GRANT USAGE ON SCHEMA public TO :runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :runtime;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO :runtime;
ALTER DEFAULT PRIVILEGES FOR ROLE :owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :runtime;
ALTER DEFAULT PRIVILEGES FOR ROLE :owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO :runtime;
GRANT EXECUTE ON FUNCTION make_partition, kept_in_partition, drop_partition TO :runtime;
REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM :runtime;
REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM :runtime;

-- The reading role reads all tables except those with secrets.
GRANT USAGE ON SCHEMA public TO :read;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :read;
REVOKE ALL ON service_keys, client_secrets, webhook_secrets FROM :read;

-- The settings of both roles' sessions. Behind a pooler, the service cannot set them itself.
DO $$ BEGIN
:settings
    EXECUTE format('ALTER ROLE :read IN DATABASE %I SET default_transaction_read_only = on', current_database());
END $$;

COMMIT;
