package models

import "errors"

// MaxAmount is the largest amount or sum that the service accepts: 2^53−1, exact in every JSON
// reader.
const MaxAmount Amount = 9007199254740991

// ErrAmountOverflow says that a sum is outside 0 to MaxAmount.
var ErrAmountOverflow = errors.New("models: amount out of range")

// Amount is money in the minor unit of a Site's currency (cents for AUD).
type Amount int64

// Add sums two amounts; a result outside 0 to MaxAmount is ErrAmountOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	if a < 0 || b < 0 || a > MaxAmount-b {
		return 0, ErrAmountOverflow
	}
	return a + b, nil
}
