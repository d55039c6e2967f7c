package models

import "time"

// Queue is the name of an Asynq queue.
type Queue string

// The queues. They are few, since polling an empty queue costs a worker a round trip.
const (
	QueueCheckout Queue = "checkout" // payments of payment intents
	QueueDebits   Queue = "debits"   // rows of batches
	QueueWebhooks Queue = "webhooks" // webhook events
	QueueSweeps   Queue = "sweeps"   // recurring tasks, and waking postponed debits
)

// Queues lists every queue. A task of a queue that is missing here would never be reclaimed.
var Queues = []Queue{QueueCheckout, QueueDebits, QueueWebhooks, QueueSweeps}

// TaskKind is the kind of work that a task does.
type TaskKind string

// The kinds of task.
const (
	TaskSettleTransaction    TaskKind = "settleTransaction"    // debit and settle one transaction
	TaskDebitRows            TaskKind = "debitRows"            // debit the rows of one chunk
	TaskDeliverWebhook       TaskKind = "deliverWebhook"       // deliver one webhook event
	TaskAnnounceBatch        TaskKind = "announceBatch"        // write the event of a settled batch
	TaskAnnounceRow          TaskKind = "announceRow"          // write the event of a row's correction
	TaskReleaseWebhooks      TaskKind = "releaseWebhooks"      // release parked events
	TaskExpireInvitations    TaskKind = "expireInvitations"    // store the expiry of invitations
	TaskExpirePaymentIntents TaskKind = "expirePaymentIntents" // end expired payment intents
	TaskCloseBatches         TaskKind = "closeBatches"         // settle batches by their deadlines
	TaskWakeDebits           TaskKind = "wakeDebits"           // make tasks due that a pause postponed
	TaskDropHistory          TaskKind = "dropHistory"          // remove data past its retention
	TaskMakePartitions       TaskKind = "makePartitions"       // make partitions ahead of time
	TaskReconcileRail        TaskKind = "reconcileRail"        // compare the ledger with the rail
	TaskAuditBooks           TaskKind = "auditBooks"           // check the invariants of money
)

// Queue returns the queue of the kind's tasks.
func (k TaskKind) Queue() Queue {
	switch k {
	case TaskSettleTransaction:
		return QueueCheckout
	case TaskDebitRows:
		return QueueDebits
	case TaskDeliverWebhook, TaskAnnounceBatch, TaskAnnounceRow:
		return QueueWebhooks
	default:
		return QueueSweeps
	}
}

// webhooksInFlight multiplies the maximum number of an organisation's tasks in flight for webhooks.
// A delivery mostly waits for the partner's server, and a few dead endpoints must not stop the
// others.
const webhooksInFlight = 64

const (
	// ClaimLease is how long a dispatcher's claim keeps a task from going out again.
	ClaimLease = 5 * time.Second
	// QueuedLease is how long a task may wait in Redis before it counts as lost. It slightly
	// exceeds RowLease, so that a worker that starts a task at once need not extend the lease. The
	// dispatcher keeps the wait far shorter.
	QueuedLease = RowLease + 5*time.Second
	// RowLease is how long a worker holds rows, and their task, without renewal.
	RowLease = 15 * time.Second
)

// Task is one row of the outbox: unfinished work.
type Task struct {
	ID             TaskID
	Kind           TaskKind
	OrganisationID OrganisationID // zero for the service's own work
	SiteID         SiteID         // zero for work of no single Site
	TraceID        TraceID        // of the request that caused the work; "" for none
	Epoch          int            // number of claims of the task; part of its name in Redis
	Rows           int            // batch rows in the chunk of TaskDebitRows, settled ones included
}
