package client

// The states of a customer link.
const (
	LinkInvited = "invited" // the customer may sign up
	LinkLinked  = "linked"  // the customer has signed up
	LinkExpired = "expired" // the invitation ended unused
	LinkRevoked = "revoked" // the partner or the customer ended the link
)

// The states of a row. A batch is inProgress or settled. Settled means ended, with any outcome.
const (
	StatePending    = "pending"
	StateInProgress = "inProgress"
	StateSettled    = "settled"
)

// The outcomes of a settled row. Every outcome but succeeded and unconfirmed means that nothing was
// debited.
const (
	OutcomeSucceeded          = "succeeded"
	OutcomeCustomerNotActive  = "customerNotActive" // the customer's link is not linked
	OutcomeInsufficientFunds  = "insufficientFunds"
	OutcomeAccountUnavailable = "accountUnavailable" // closed or frozen, or no such agreement
	OutcomeLimitExceeded      = "limitExceeded"      // the amount is above the customer's limit
	OutcomeDeclinedByCustomer = "declinedByCustomer"
	OutcomeDeclined           = "declined"    // by the bank, for another reason
	OutcomeTimedOut           = "timedOut"    // not debited before the deadline
	OutcomeUnconfirmed        = "unconfirmed" // may have been debited: do not submit the row again
	OutcomeCancelled          = "cancelled"   // the batch was cancelled before the debit
)

// The states of a payment intent.
const (
	IntentCreated = "created" // no customer has started to pay
	IntentPending = "pending" // a customer has started to pay
	IntentFinal   = "final"   // the payment has ended; see its transaction status
)

// The transaction statuses of a final payment intent.
const (
	StatusSettled   = "Settled"   // the customer has paid
	StatusDeclined  = "Declined"  // the customer or the bank refused
	StatusFailed    = "Failed"    // the bank could not debit, and has confirmed that it debited nothing
	StatusCancelled = "Cancelled" // the partner cancelled before a customer started to pay
	StatusExpired   = "Expired"   // no customer started to pay in time
)

// The types of webhook events.
const (
	EventTransactionStatus = "transactionStatus" // a payment intent is final
	EventBatchSettled      = "batchSettled"      // every row of a batch is settled
	EventRowCorrected      = "rowCorrected"      // the bank's late answer about a settled row differs from its outcome
	EventCustomerLinked    = "customerLinked"    // a customer has signed up
	EventCustomerRevoked   = "customerRevoked"   // an invitation or a link was revoked
	EventCustomerExpired   = "customerExpired"   // an invitation has expired
)
