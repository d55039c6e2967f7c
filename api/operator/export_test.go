package operator

// SetHashCost changes the cost of hashes, and returns that of the product.
func SetHashCost(cost int) (product int) {
	product, hashCost = hashCost, cost
	return product
}
