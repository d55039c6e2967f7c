package main

import "testing"

// Every caller makes the requests of all entries, equally often.
func TestMixIsComplete(t *testing.T) {
	t.Parallel()
	for _, entries := range []int{20, len(newSoakLoad(&soakFleet{haFleet: &haFleet{}}).schedule)} {
		for callers := 1; callers <= 24; callers++ {
			times := map[[2]int]int{}
			for n := range 3 * entries * callers {
				entry, caller := mix(n, entries, callers)
				times[[2]int{entry, caller}]++
			}
			for pair, n := range times {
				if n != 3 {
					t.Fatalf("%d entries, %d callers: entry and caller %v come %d times", entries, callers, pair, n)
				}
			}
			if len(times) != entries*callers {
				t.Errorf("%d entries, %d callers: %d pairs", entries, callers, len(times))
			}
		}
	}
}
