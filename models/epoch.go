package models

// Epoch identifies one history of the database. A promotion or a restore begins a new epoch:
// acknowledged commits may be lost, so that everything begun in an earlier epoch is in doubt.
type Epoch struct {
	Number int
	// HeldBefore: work of epochs before this one waits for an operator; 0 if none does.
	HeldBefore int
	// InDoubt is the number of batches and payment intents of earlier epochs that are open or in
	// doubt.
	InDoubt int
}
