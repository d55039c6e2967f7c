DROP TABLE webhook_leases;
