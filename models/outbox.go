package models

import "time"

// Queue is the name of an Asynq queue.
type Queue string

// The queues. There are few, since every empty one costs a worker a round trip.
const (
	QueueCheckout Queue = "checkout"
	QueueDebits   Queue = "debits"
	QueueWebhooks Queue = "webhooks"
	QueueSweeps   Queue = "sweeps"
)

// TaskKind is what a task does.
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
	TaskDropHistory          TaskKind = "dropHistory"
)

// Queue is the queue on which tasks of the kind travel.
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

// webhooksInFlight is how many times the general cap an organisation may have of webhooks in flight: each waits for a
// stranger's server rather than works, and those of a few dead endpoints must not stop the others.
const webhooksInFlight = 64

const (
	// ClaimLease is how long a dispatcher's claim alone keeps a task from going out again.
	ClaimLease = 5 * time.Second
	// QueuedLease is how long a task may wait in Redis before it is taken for lost. It is little more than RowLease, so that a
	// worker that takes the task at once need not move it, and long compared with the queue, which the dispatcher keeps short.
	QueuedLease = RowLease + 5*time.Second
	// RowLease is how long a worker owns rows, and their task, without a sign of life.
	RowLease = 15 * time.Second
)

// Task is one row of the outbox: a piece of work that is not finished.
type Task struct {
	ID             TaskID
	Kind           TaskKind
	OrganisationID OrganisationID // zero for the service's own work
	SiteID         SiteID
	TraceID        TraceID
	Epoch          int // how many times the task has gone out; part of its name in Redis
	Rows           int // of the subject that are the task's, at most
}
