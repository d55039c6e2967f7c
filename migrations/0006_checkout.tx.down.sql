DROP TABLE payment_intents;
DROP TYPE transaction_status, intent_state;
