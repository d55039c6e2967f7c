package models

// CrowdPartsForTest lets parts of the counts of links be crowded from more than n links on, so that few links make a deep tree.
func (s *Store) CrowdPartsForTest(n int) { s.crowded = n }

// ListLinksForTest is the statement of a list, and its parameters.
func ListLinksForTest(q LinkQuery) (query string, args []any) {
	return listLinksSQL(&q), listLinksArgs(&q)
}

// LinkCountsLockForTest is the advisory lock of the counts, for tests that play another that folds.
const LinkCountsLockForTest = linkCountsLock
