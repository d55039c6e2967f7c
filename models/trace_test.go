package models_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"partnerbilling/models"
)

func TestNewTraceIDs(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{12}7[0-9a-f]{19}$`)
	last, seen := models.TraceID(""), map[models.TraceID]bool{}
	var ones [64]int // by bit of the second half
	const n = 10_000
	for range n {
		id := models.NewTraceID()
		if !form.MatchString(string(id)) || id <= last || seen[id[16:]] {
			t.Fatalf("%s after %s", id, last)
		}
		last, seen[id[16:]] = id, true
		for i, digit := range id[16:] {
			for bit := range 4 {
				if strings.IndexRune("0123456789abcdef", digit)>>bit&1 == 1 {
					ones[4*i+bit]++
				}
			}
		}
	}
	for i, count := range ones { // of a fair coin, 4,500 and 5,500 are ten standard deviations away
		if count < n*45/100 || count > n*55/100 {
			t.Errorf("bit %d of the random half is 1 in %d of %d", i, count, n)
		}
	}
}

func TestParseTraceID(t *testing.T) {
	t.Parallel()
	good := string(models.NewTraceID())
	if id, err := models.ParseTraceID(good); string(id) != good || err != nil {
		t.Errorf("%s: %s, %v", good, id, err)
	}
	for _, bad := range []string{"", good[1:], good + "0", strings.ToUpper("a" + good[1:]), " " + good[1:],
		"é" + good[2:], "g" + good[1:]} {
		if id, err := models.ParseTraceID(bad); id != "" || !errors.Is(err, models.ErrInvalidTraceID) {
			t.Errorf("%q: %s, %v", bad, id, err)
		}
	}
}
