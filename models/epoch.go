package models

// Epoch identifies one history of the database. A promotion or a restore begins a new epoch:
// acknowledged commits may be lost, so that everything begun in an earlier epoch is in doubt.
type Epoch struct {
	Number int
	// HeldBefore is the first epoch whose work is not held: unfinished work of earlier epochs waits
	// for an operator. 0: none waits.
	HeldBefore int
	// InDoubt is the number of open batches and payment intents of earlier epochs.
	InDoubt int
}
