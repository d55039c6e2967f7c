DROP TABLE alerts, idempotency_keys, service_keys, client_assertions, client_secrets, api_clients, sites, organisations;
DROP FUNCTION svc_now();
DROP TABLE service_clock;
