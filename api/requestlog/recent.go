package requestlog

import (
	"crypto/rand"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"partnerbilling/models"
)

// Recent keeps the latest records of each organisation in memory. It bounds the number and the
// bytes of an organisation's records, and drops the oldest ones first. It also bounds the number of
// organisations, and drops the least recently used one. It is safe for concurrent use.
type Recent[T any] struct {
	maxRecords, maxBytes int
	mu                   sync.Mutex
	byOrganisation       *lru.Cache[models.OrganisationID, *records[T]]
}

// records are the records of one organisation, oldest first. The first record ever added has the
// number 1, the next one 2, and so on.
type records[T any] struct {
	id    string // random; no other list has it
	list  []record[T]
	bytes int   // sum of the sizes in list
	added int64 // number of the latest record
}

// record is one record with its size in bytes, recordOverhead included.
type record[T any] struct {
	value T
	size  int
}

// recordOverhead is added to the size of each record's texts, in bytes.
const recordOverhead = 512

// NewRecent returns an empty Recent. It keeps at most maxRecords records and maxBytes bytes of each
// organisation, and at most the given number of organisations.
func NewRecent[T any](organisations, maxRecords, maxBytes int) *Recent[T] {
	byOrganisation, err := lru.New[models.OrganisationID, *records[T]](organisations)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Recent[T]{maxRecords: maxRecords, maxBytes: maxBytes, byOrganisation: byOrganisation}
}

// Add keeps a record, and drops the oldest records until the rest is within the bounds. A record
// that alone exceeds maxBytes is dropped at once. size is the size of the record's texts, in bytes.
func (r *Recent[T]) Add(organisation models.OrganisationID, value T, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, ok := r.byOrganisation.Get(organisation)
	if !ok {
		kept = &records[T]{id: rand.Text()}
		r.byOrganisation.Add(organisation, kept)
	}
	size += recordOverhead
	kept.list = append(kept.list, record[T]{value, size})
	kept.bytes += size
	kept.added++
	drop := 0
	for len(kept.list)-drop > r.maxRecords || kept.bytes > r.maxBytes {
		kept.bytes -= kept.list[drop].size
		kept.list[drop] = record[T]{} // frees the value while the array lives on
		drop++
	}
	kept.list = kept.list[drop:]
}

// Latest returns the records of an organisation, newest first.
func (r *Recent[T]) Latest(organisation models.OrganisationID) (values []T) {
	r.read(organisation, func(kept *records[T]) {
		values = make([]T, len(kept.list))
		for i, each := range kept.list {
			values[len(values)-1-i] = each.value
		}
	})
	return values
}

// read calls a function with the records of an organisation, which may be empty. It holds the lock
// during the call.
func (r *Recent[T]) read(organisation models.OrganisationID, do func(kept *records[T])) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, ok := r.byOrganisation.Get(organisation)
	if !ok {
		kept = &records[T]{}
	}
	do(kept)
}

// number returns the number of the record at an index.
func (r *records[T]) number(index int) int64 { return r.added - int64(len(r.list)-1-index) }

// indexAfter returns the index of the first kept record whose number is above the given one. It
// returns the length of the list if there is none.
func (r *records[T]) indexAfter(number int64) int {
	dropped := r.added - int64(len(r.list))
	return int(min(max(number-dropped, 0), int64(len(r.list))))
}

// Clear drops the records of an organisation.
func (r *Recent[T]) Clear(organisation models.OrganisationID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byOrganisation.Remove(organisation)
}
