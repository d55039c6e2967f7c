package jobs

import "context"

// Permits bounds how many rail calls a process has under way.
type Permits struct{ tokens chan struct{} }

// NewPermits makes n permits; n is at least 1.
func NewPermits(n int) *Permits {
	p := &Permits{tokens: make(chan struct{}, max(n, 1))}
	p.Give(cap(p.tokens))
	return p
}

// Take waits for a permit and takes as many more as are there at once, n at most. It returns how many; 0 if the context
// ended first.
func (p *Permits) Take(ctx context.Context, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-p.tokens:
	case <-ctx.Done():
		return 0
	}
	for taken := 1; taken < n; taken++ {
		select {
		case <-p.tokens:
		default:
			return taken
		}
	}
	return n
}

// Give returns n permits.
func (p *Permits) Give(n int) {
	for range n {
		p.tokens <- struct{}{}
	}
}
