package qr

import (
	"math"
	"math/bits"
)

// What the standard counts against a code, so that of eight masks the one that scanners find easiest is taken.
const (
	penaltyRun    = 2 // for each run of five or more of a colour, and one for each module from the fifth on
	penaltyBlock  = 3
	penaltyFinder = 40
	penaltyShare  = 10
)

// penalty judges a code exactly as the encoder does, a line of modules at a time.
func (s *symbol) penalty() int {
	total, dark := 0, 0
	for i := range s.size {
		total += linePenalty(s.rows[i], s.size) + linePenalty(s.cols[i], s.size)
		dark += bits.OnesCount64(s.rows[i])
		if i > 0 {
			total += penaltyBlock * blocks(s.rows[i-1], s.rows[i], s.size)
		}
	}
	return total + sharePenalty(dark, s.size*s.size)
}

// linePenalty judges a row or column: long runs, and what looks like a finder pattern with white beside it.
func linePenalty(line uint64, size int) int {
	like := ^(line ^ line>>1) & (1<<(size-1) - 1)          // x is like x+1
	five := like & (like >> 1) & (like >> 2) & (like >> 3) // so are the four after it
	finder := line &^ (line >> 1) & (line >> 2) & (line >> 3) & (line >> 4) &^ (line >> 5) & (line >> 6)
	white := ^(line | line>>1 | line>>2 | line>>3)
	finders := (finder&(white>>7) | white&(finder>>4)) & (1<<(size-10) - 1)
	return bits.OnesCount64(five) + penaltyRun*bits.OnesCount64(five&^(five<<1)) + penaltyFinder*bits.OnesCount64(finders)
}

// blocks counts the squares of four modules of a colour in two adjacent rows.
func blocks(above, below uint64, size int) int {
	like, same := ^(above ^ above>>1), ^(above ^ below)
	return bits.OnesCount64(like & same & (same >> 1) & (1<<(size-1) - 1))
}

// sharePenalty judges how far the share of dark modules is from a half, in steps of 5 %.
func sharePenalty(dark, all int) int {
	steps := float64(dark) * 100 / float64(all) / 5
	return penaltyShare * int(min(math.Abs(math.Floor(steps)-10), math.Abs(math.Ceil(steps)-10)))
}
