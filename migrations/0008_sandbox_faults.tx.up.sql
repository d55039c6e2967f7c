-- Faults of the sandbox rail, for all its accounts. Each ends by itself, in service time.
CREATE TABLE sandbox_faults (
    fault   text   COLLATE "C" PRIMARY KEY,
    ends_at bigint NOT NULL,
    CHECK (fault IN ('bankDown', 'answersLost'))
);
