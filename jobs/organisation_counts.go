package jobs

import (
	"sync"

	"partnerbilling/models"
)

// busyAbove is the number of an organisation's deliveries in this process above which the
// organisation is busy.
const busyAbove = 32

// organisationCounts counts the running webhook deliveries of each organisation in this process. It
// is safe for concurrent use.
type organisationCounts struct {
	mu sync.Mutex
	n  map[models.OrganisationID]int // only counts above 0
}

// begin counts a delivery and reports whether its organisation is busy.
func (c *organisationCounts) begin(organisation models.OrganisationID) (busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[models.OrganisationID]int)
	}
	c.n[organisation]++
	return c.n[organisation] > busyAbove
}

// end counts the end of a delivery that begin has counted.
func (c *organisationCounts) end(organisation models.OrganisationID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[organisation]--
	if c.n[organisation] == 0 {
		delete(c.n, organisation)
	}
}
