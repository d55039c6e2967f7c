-- Service time where a function must tell it: Postgres keeps the plan of a function in plpgsql for the session, and makes that of one
-- in SQL anew at every call, which takes longer than the call.
CREATE OR REPLACE FUNCTION svc_now() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT now FROM service_now);
END $$;
