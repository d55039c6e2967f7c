package models

import "errors"

var (
	// ErrPaused says that the debits of the organisation, or the queue, are paused already.
	ErrPaused = errors.New("models: already paused")
	// ErrNotPaused says that there is no pause to end.
	ErrNotPaused = errors.New("models: not paused")
	// ErrNotPausable says that the queue does not exist or cannot be paused.
	ErrNotPausable = errors.New("models: the queue cannot be paused")
)

// PausableQueues are the queues that an operator can pause. QueueSweeps is not one: it settles rows
// at their deadlines.
var PausableQueues = []Queue{QueueCheckout, QueueDebits, QueueWebhooks}

// Pause is a pause in force: of an organisation's debits or of a queue.
type Pause struct {
	OrganisationID OrganisationID // zero: the pause of a queue
	Organisation   string         // its name
	Queue          Queue          // "": the pause of an organisation's debits
	At             Millis         // service time at which the pause began
	By             string         // the operator's name
	Reason         string         // in the operator's words
}
