package models

// BatchStory is everything that the service knows about a batch, for operators.
type BatchStory struct {
	Batch   Batch
	TraceID TraceID
	Epoch   int // of the database, at submission
	Rows    []RowStory
	Events  []WebhookEvent // of the batch and its rows, oldest first, at most MaxTraceEvents
	Alerts  []Alert        // open ones about the batch, its rows and Events, at most 100
	Paused  bool           // the organisation's debits are paused
	Now     Millis         // service time of the answer
}

// RowStory is a row of a BatchStory.
type RowStory struct {
	BatchRow
	RailKey   string
	LinkID    LinkID // the customer link that the row is bound to; zero: none
	InDoubt   bool   // an earlier debit call may lack its answer
	Leased    bool   // a worker holds the row
	Deferrals int    // tries so far without a final answer
	CalledAt  Millis // a lower bound for the time of the last rail call; 0: unknown
}

// PaymentStory is everything that the service knows about a payment intent, for operators.
type PaymentStory struct {
	Intent        PaymentIntent
	RailKey       string
	ClosingAs     TransactionStatus // how it ends once the rail confirms no payment; "": not closing
	Attempts      int               // debit calls
	InDoubt       bool              // an earlier debit call may lack its answer
	Leased        bool              // a worker holds the transaction
	Deferrals     int               // tries so far without a final answer
	CalledAt      Millis            // a lower bound for the time of the last rail call; 0: unknown
	NextAttemptAt Millis            // 0: none is planned
	RecordedAt    Millis            // of its ledger entry; 0: none
	Events        []EventStory      // newest first, at most 100
	Alerts        []Alert           // open ones about the payment and Events, at most 100
	Now           Millis            // service time of the answer
}

// EventStory is a webhook event with its attempts.
type EventStory struct {
	WebhookEvent
	Attempts []WebhookAttempt
}
