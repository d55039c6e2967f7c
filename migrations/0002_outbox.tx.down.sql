DROP TABLE recurring_work, outbox;
