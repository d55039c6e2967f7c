package models

import "errors"

// MaxAmount is the largest amount or sum that the service accepts: 2^53−1. JSON readers that hold
// numbers as float64 read every integer up to it exactly.
const MaxAmount Amount = 9007199254740991

// ErrAmountOverflow says that a summand is negative or a sum exceeds MaxAmount.
var ErrAmountOverflow = errors.New("models: amount out of range")

// Amount is money in the minor unit of a Site's currency (cents for AUD).
type Amount int64

// Add returns the sum of two amounts. ErrAmountOverflow: one of them is negative, or the sum
// exceeds MaxAmount.
func (a Amount) Add(b Amount) (Amount, error) {
	if a < 0 || b < 0 || a > MaxAmount-b {
		return 0, ErrAmountOverflow
	}
	return a + b, nil
}
