package models

// BatchStory is everything that the service knows about a batch, for operators.
type BatchStory struct {
	Batch   Batch
	TraceID TraceID
	Epoch   int // of the database, at submission
	Rows    []RowStory
	Events  []WebhookEvent // of the batch and its rows, oldest first, at most MaxTraceEvents
	Alerts  []Alert        // open ones, of the batch and its rows
	Paused  bool           // the organisation's debits are paused
	Now     Millis
}

// RowStory is a row of a BatchStory.
type RowStory struct {
	BatchRow
	RailKey   string
	LinkID    LinkID // the customer link that the row is bound to; zero: none
	InDoubt   bool   // an earlier debit call may lack its answer
	Leased    bool   // a worker holds the row
	Deferrals int    // tries so far without a final answer
	CalledAt  Millis // the last rail call was not before this time; 0: not before submission
}

// PaymentStory is everything that the service knows about a payment intent, for operators.
type PaymentStory struct {
	Intent        PaymentIntent
	RailKey       string
	ClosingAs     TransactionStatus // while the rail must confirm that it was not paid; else ""
	Attempts      int               // debit calls
	InDoubt       bool
	Leased        bool
	Deferrals     int
	CalledAt      Millis // the last rail call was not before this time; 0: not before creation
	NextAttemptAt Millis // 0: none is planned
	RecordedAt    Millis // of its ledger entry; 0: none
	Events        []EventStory
	Alerts        []Alert // open ones
	Now           Millis
}

// EventStory is an event with its attempts.
type EventStory struct {
	WebhookEvent
	Attempts []WebhookAttempt
}
