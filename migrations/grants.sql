-- The privileges of the service's roles. After every `svc migrate up`, a superuser runs it, or an
-- owner that may alter the roles. Repetition changes nothing.
BEGIN;

-- Only the owner changes the schema.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
DO $$ BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO :runtime, :read', current_database());
END $$;

-- The runtime role: rows, no schema but for the functions that make and drop partitions. It reads
-- the list of migrations, and extends the audit log.
GRANT USAGE ON SCHEMA public TO :runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :runtime;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO :runtime;
ALTER DEFAULT PRIVILEGES FOR ROLE :owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :runtime;
ALTER DEFAULT PRIVILEGES FOR ROLE :owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO :runtime;
GRANT EXECUTE ON FUNCTION make_partition, kept_in_partition, drop_partition TO :runtime;
REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM :runtime;
REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM :runtime;

-- The reading role: tables without secrets.
GRANT USAGE ON SCHEMA public TO :read;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :read;
REVOKE ALL ON service_keys, client_secrets, webhook_secrets FROM :read;

-- The settings of their sessions, which the service sets itself unless a pooler is in front.
DO $$ BEGIN
:settings
    EXECUTE format('ALTER ROLE :read IN DATABASE %I SET default_transaction_read_only = on', current_database());
END $$;

COMMIT;
