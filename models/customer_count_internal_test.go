package models

// SplitPartsAboveForTest splits parts of the counts above n links, so that few links make a deep
// tree.
func (s *Store) SplitPartsAboveForTest(n int) { s.splitAbove = n }

// LinkCountsLockForTest is the advisory lock of the counts, for tests that simulate a concurrent
// fold.
const LinkCountsLockForTest = linkCountsLock
