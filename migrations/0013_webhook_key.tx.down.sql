SELECT 1; -- the schema is the same
