package console

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"partnerbilling/models"
)

// shelf keeps the latest records of each organisation in memory. It is bounded in records and bytes
// for each, and in organisations: the one that was idle for longest gives way. It is safe for
// concurrent use.
type shelf[T any] struct {
	maxRecords, maxBytes int
	mu                   sync.Mutex
	shelves              *lru.Cache[models.OrganisationID, *records[T]]
}

// records are those of one organisation, oldest first.
type records[T any] struct {
	list  []record[T]
	bytes int
}

type record[T any] struct {
	value T
	size  int
}

// recordOverhead is added to the size of each record's texts, in bytes.
const recordOverhead = 512

func newShelf[T any](organisations, maxRecords, maxBytes int) *shelf[T] {
	shelves, err := lru.New[models.OrganisationID, *records[T]](organisations)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &shelf[T]{maxRecords: maxRecords, maxBytes: maxBytes, shelves: shelves}
}

// add keeps a record whose texts have a size in bytes, and drops the oldest ones that exceed
// the bounds.
func (s *shelf[T]) add(organisation models.OrganisationID, value T, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.shelves.Get(organisation)
	if !ok {
		kept = &records[T]{}
		s.shelves.Add(organisation, kept)
	}
	size += recordOverhead
	kept.list = append(kept.list, record[T]{value, size})
	kept.bytes += size
	drop := 0
	for len(kept.list)-drop > s.maxRecords || kept.bytes > s.maxBytes {
		kept.bytes -= kept.list[drop].size
		kept.list[drop] = record[T]{} // the array outlives it
		drop++
	}
	kept.list = kept.list[drop:]
}

// latest are the records of an organisation, newest first.
func (s *shelf[T]) latest(organisation models.OrganisationID) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.shelves.Get(organisation)
	if !ok {
		return nil
	}
	values := make([]T, len(kept.list))
	for i, r := range kept.list {
		values[len(values)-1-i] = r.value
	}
	return values
}

// clear drops the records of an organisation.
func (s *shelf[T]) clear(organisation models.OrganisationID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shelves.Remove(organisation)
}
