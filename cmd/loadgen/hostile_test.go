package main

import "testing"

// Bodies of different runs have different references, and nearly fill the API's limit.
func TestLargeBatchesAreNew(t *testing.T) {
	t.Parallel()
	first, second := largeBatches()(1), largeBatches()(1)
	if first == second {
		t.Error("two runs send the same batch")
	}
	if len(first) > mebibyte || len(first) < mebibyte*9/10 {
		t.Errorf("a body has %d bytes", len(first))
	}
}
