package models

// Epoch is the database's identity as the service knows it. A promotion, or a restore, begins an epoch: commits that the
// service had acknowledged may be lost, so that everything begun in an earlier epoch is in doubt.
type Epoch struct {
	Number  int
	BeganAt Millis // 0 for the first
	// HeldBefore: work of earlier epochs than this waits for an operator; 0 if none does.
	HeldBefore int
	// CancelledBefore: work of earlier epochs than this is cancelled on the rail; 0 if none is.
	CancelledBefore int
	// Doubted counts the batches and payment intents of earlier epochs that are still open or in doubt.
	Doubted int
}
