package main

import (
	"sync"
	"time"
)

// haPace lets the partners do their share between promotions, however long these take.
type haPace struct {
	promotions int

	mu   sync.Mutex
	done int
	last time.Time // when the last promotion was over
	end  bool
}

// dwell is about how long a fleet is at work between two promotions.
const dwell = 5 * time.Second

func (p *haPace) promoted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.last = p.done+1, time.Now()
}

func (p *haPace) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = true
}

// isOver reports whether all promotions are.
func (p *haPace) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// due returns how many of all should have been done by now.
func (p *haPace) due(all int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end {
		return all
	}
	part := min(1, time.Since(p.last).Seconds()/dwell.Seconds())
	return int(float64(all) * (float64(p.done) + part) / float64(p.promotions))
}
