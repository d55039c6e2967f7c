-- The primary key anew, so that it is the youngest index. While a table is small all indexes that begin with the organisation look alike
-- to the planner, and it takes the youngest: events were looked up by their organisation alone, among all that it had.
ALTER TABLE webhook_attempts DROP CONSTRAINT webhook_attempts_organisation_id_event_id_fkey;
ALTER TABLE webhook_events DROP CONSTRAINT webhook_events_pkey;
ALTER TABLE webhook_events ADD PRIMARY KEY (organisation_id, id);
ALTER TABLE webhook_attempts ADD FOREIGN KEY (organisation_id, event_id) REFERENCES webhook_events ON DELETE CASCADE;
