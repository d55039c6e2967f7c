DELETE FROM outbox WHERE kind IN ('settleTransaction', 'expirePaymentIntents');
DELETE FROM recurring_work WHERE kind = 'expirePaymentIntents';
DROP TABLE payment_intents;
DROP TYPE transaction_status, intent_state;
