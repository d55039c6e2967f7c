package models

import "time"

// Queue is the name of an Asynq queue.
type Queue string

// The queues. They are few, since each empty queue costs a worker a round trip.
const (
	QueueCheckout Queue = "checkout"
	QueueDebits   Queue = "debits"
	QueueWebhooks Queue = "webhooks"
	QueueSweeps   Queue = "sweeps"
)

// Queues are all queues. A task of a queue that is missing here would never be reclaimed.
var Queues = []Queue{QueueCheckout, QueueDebits, QueueWebhooks, QueueSweeps}

// TaskKind is the kind of work that a task does.
type TaskKind string

// The kinds of task.
const (
	TaskSettleTransaction    TaskKind = "settleTransaction"
	TaskDebitRows            TaskKind = "debitRows"
	TaskDeliverWebhook       TaskKind = "deliverWebhook"
	TaskAnnounceBatch        TaskKind = "announceBatch"
	TaskAnnounceRow          TaskKind = "announceRow"
	TaskReleaseWebhooks      TaskKind = "releaseWebhooks"
	TaskExpireInvitations    TaskKind = "expireInvitations"
	TaskExpirePaymentIntents TaskKind = "expirePaymentIntents"
	TaskCloseBatches         TaskKind = "closeBatches"
	TaskResumeDebits         TaskKind = "resumeDebits"
	TaskDropHistory          TaskKind = "dropHistory"
	TaskMakePartitions       TaskKind = "makePartitions"
	TaskReconcileRail        TaskKind = "reconcileRail"
	TaskAuditBooks           TaskKind = "auditBooks"
)

// Queue returns the queue on which tasks of the kind travel.
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

// webhooksInFlight multiplies an organisation's cap for webhooks: a delivery mostly waits for the
// partner's server, and a few dead endpoints must not stop the others.
const webhooksInFlight = 64

const (
	// ClaimLease is how long a dispatcher's claim keeps a task from going out again.
	ClaimLease = 5 * time.Second
	// QueuedLease is how long a task may wait in Redis before it counts as lost. It slightly
	// exceeds RowLease, so that a worker that starts a task at once need not extend it. The
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
	SiteID         SiteID
	TraceID        TraceID
	Epoch          int // number of claims of the task; part of its name in Redis
	Rows           int // number of batch rows in the task's chunk, settled ones included
}
