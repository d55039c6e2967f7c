package operator

// OccupyProcessors takes all processors that verify passwords, until free is called.
func (l *Login) OccupyProcessors() (free func()) {
	for range maxHashing {
		l.hashing <- struct{}{}
	}
	return func() {
		for range maxHashing {
			<-l.hashing
		}
	}
}

// AttemptTimeout bounds one attempt.
const AttemptTimeout = attemptTimeout

// SetHashCost changes the cost of hashes, and returns that of the product.
func SetHashCost(cost int) (product int) {
	product, hashCost = hashCost, cost
	return product
}
