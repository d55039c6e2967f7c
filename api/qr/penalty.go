package qr

import (
	"math"
	"math/bits"
)

// The penalties of the standard (ISO/IEC 18004) for patterns that are hard to scan. An encoder
// chooses the mask with the lowest total. A module is one of the small squares of a code.
const (
	penaltyRun    = 2  // per run of five or more modules of one colour, and 1 more for each module from the fifth on
	penaltyBlock  = 3  // per square of 2 by 2 modules of one colour; squares may overlap
	penaltyFinder = 40 // per pattern that looks like a finder pattern
	penaltyRatio  = 10 // per full 5 % by which the proportion of dark modules differs from a half
)

// penalty returns the total penalty of a code, as the encoder of github.com/boombuler/barcode
// computes it.
func (s *symbol) penalty() int {
	total, dark := 0, 0
	for i := range s.size {
		total += linePenalty(s.rows[i], s.size) + linePenalty(s.cols[i], s.size)
		dark += bits.OnesCount64(s.rows[i])
		if i > 0 {
			total += penaltyBlock * blocks(s.rows[i-1], s.rows[i], s.size)
		}
	}
	return total + ratioPenalty(dark, s.size*s.size)
}

// linePenalty returns the penalty of a row or column for long runs, and for the finder-like pattern
// 1011101 with four white modules before or after it. It evaluates all modules of the line at once,
// with bit operations.
func linePenalty(line uint64, size int) int {
	like := ^(line ^ line>>1) & (1<<(size-1) - 1)          // bit x: modules x and x+1 are equal
	five := like & (like >> 1) & (like >> 2) & (like >> 3) // bit x: five equal modules from x on
	finder := line &^ (line >> 1) & (line >> 2) & (line >> 3) & (line >> 4) &^ (line >> 5) & (line >> 6)
	white := ^(line | line>>1 | line>>2 | line>>3)
	finders := (finder&(white>>7) | white&(finder>>4)) & (1<<(size-10) - 1)
	return bits.OnesCount64(five) + penaltyRun*bits.OnesCount64(
		five&^(five<<1)) + penaltyFinder*bits.OnesCount64(finders)
}

// blocks counts the squares of 2 by 2 modules of one colour in two adjacent rows.
func blocks(above, below uint64, size int) int {
	like, same := ^(above ^ above>>1), ^(above ^ below)
	return bits.OnesCount64(like & same & (same >> 1) & (1<<(size-1) - 1))
}

// ratioPenalty returns the penalty for the proportion of dark modules among all.
func ratioPenalty(dark, all int) int {
	steps := float64(dark) * 100 / float64(all) / 5
	return penaltyRatio * int(min(math.Abs(math.Floor(steps)-10), math.Abs(math.Ceil(steps)-10)))
}
