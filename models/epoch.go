package models

// Epoch is one history of the database's commits. A promotion of a standby or a restore begins a
// new epoch. Either may lose commits that were acknowledged, so all unfinished work of earlier
// epochs is in doubt.
type Epoch struct {
	Number int // from 1
	// HeldBefore is the first epoch whose work is not held. The unfinished work of the epochs
	// before it waits for an operator's decision. 0: none waits.
	HeldBefore int
	// InDoubt is the number of open batches and payment intents of earlier epochs.
	InDoubt int
}
