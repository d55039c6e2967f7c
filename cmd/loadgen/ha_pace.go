package main

import (
	"math"
	"sync"
	"time"
)

// haPace spreads the work of the partners evenly over the promotions of a failover run. It is safe
// for concurrent use.
type haPace struct {
	promotions int // number of all promotions

	mu   sync.Mutex
	done int       // promotions so far
	last time.Time // end of the last promotion, or beginning of the run
	end  bool      // all promotions are over
}

// promotionInterval is the approximate time between two consecutive promotions.
const promotionInterval = 5 * time.Second

// promoted records the end of a promotion.
func (p *haPace) promoted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.last = p.done+1, time.Now()
}

// finish records that all promotions are over.
func (p *haPace) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = true
}

// isFinished reports whether all promotions are over.
func (p *haPace) isFinished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// due returns how many of all items are due by now. The rate of new items falls with the time since
// the last promotion. Thus some work is left for the next promotion, however long that takes.
func (p *haPace) due(all int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end {
		return all
	}
	part := 1 - math.Exp(-2*time.Since(p.last).Seconds()/promotionInterval.Seconds())
	return int(float64(all) * (float64(p.done) + part) / float64(p.promotions))
}
