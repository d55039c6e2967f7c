package qr

import (
	"bytes"
	"fmt"
	"image/png"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/boombuler/barcode/qr"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

// A Series and the encoder make equal codes, for each of the masks.
func TestModules(t *testing.T) {
	t.Parallel()
	const prefix = "HTTPS://PAY.EXAMPLE.COM/P/"
	b, err := newBasis(prefix, 16)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var seen [8]int
	for n := 0; n < 300 || slices.Min(seen[:]) == 0; n++ {
		ending := randomEnding(random)
		code := b.code(ending)
		want, err := qr.Encode(prefix+ending, qr.M, qr.AlphaNumeric)
		if err != nil {
			t.Fatal(err)
		}
		for y := range code.size {
			for x := range code.size {
				r, _, _, _ := want.At(x, y).RGBA()
				if code.at(x, y) != (r == 0) || code.at(x, y) != (code.cols[x]>>y&1 == 1) {
					t.Fatalf("%s: module (%d, %d) is %v", ending, x, y, code.at(x, y))
				}
			}
		}
		seen[maskOf(&code)]++
	}
	t.Logf("masks: %v", seen)
}

// Codes of every version are readable with each of the masks.
func TestEveryMask(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for _, length := range []int{5, 20, 40, 60, 80, 110, 130, 160, 190, 220, 260, 300} {
		content := ""
		for len(content) < length {
			content += randomEnding(random)
		}
		code, err := encode(content)
		if err != nil {
			t.Fatal(err)
		}
		all := maskSymbols(code.size)
		code.xor(&all[maskOf(code)])
		for mask := range all {
			masked := *code
			masked.xor(&all[mask])
			picture, err := png.Decode(bytes.NewReader(appendPNG(nil, masked.rows[:masked.size])))
			if err != nil {
				t.Fatal(err)
			}
			bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
			if err != nil {
				t.Fatal(err)
			}
			hints := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
			result, err := qrcode.NewQRCodeReader().Decode(bitmap, hints)
			if err != nil || result.GetText() != content {
				t.Fatalf("size %d, mask %d: %v", code.size, mask, err)
			}
			if got := maskOf(&masked); got != mask {
				t.Errorf("mask %d reads as %d", mask, got)
			}
		}
	}
}

func randomEnding(random *rand.Rand) string {
	text := make([]byte, 16)
	for i := range text {
		text[i] = alphanumeric[random.IntN(radix)]
	}
	return string(text)
}

// The penalty equals that of a naive implementation of the standard, module by module.
func TestPenalty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{21, 25, 29, 45, 61} {
		for range 50 {
			s := &symbol{size: size}
			density := 1 + random.IntN(9)
			for y := range size {
				for x := range size {
					if random.IntN(10) < density {
						s.flip(x, y)
					}
				}
			}
			if got, want := s.penalty(), naivePenalty(s); got != want {
				t.Fatalf("size %d: penalty %d, want %d", size, got, want)
			}
		}
	}
}

func naivePenalty(s *symbol) int {
	total, dark := 0, 0
	for _, at := range []func(x, y int) bool{s.at, func(x, y int) bool { return s.at(y, x) }} {
		for y := range s.size {
			line := ""
			for x := range s.size {
				line += map[bool]string{true: "1", false: "0"}[at(x, y)]
			}
			total += naiveLinePenalty(line)
		}
	}
	for y := range s.size {
		for x := range s.size {
			if s.at(x, y) {
				dark++
			}
			if x > 0 && y > 0 && s.at(x, y) == s.at(x-1, y) && s.at(x, y) == s.at(x, y-1) &&
				s.at(x, y) == s.at(x-1, y-1) {
				total += 3
			}
		}
	}
	for k := 0; ; k++ { // ten for each 5 % between the ratio and a half
		if 100*dark >= (50-5*(k+1))*s.size*s.size && 100*dark <= (50+5*(k+1))*s.size*s.size {
			if 100*dark == (50-5*(k+1))*s.size*s.size || 100*dark == (50+5*(k+1))*s.size*s.size {
				k++
			}
			return total + 10*k
		}
	}
}

func naiveLinePenalty(line string) int {
	total, run := 0, 0
	for i := range line {
		if i > 0 && line[i] != line[i-1] {
			run = 0
		}
		if run++; run == 5 {
			total += 3
		} else if run > 5 {
			total++
		}
		if i+11 <= len(line) && (line[i:i+11] == "10111010000" || line[i:i+11] == "00001011101") {
			total += 40
		}
	}
	return total
}

func ExampleIsAlphanumeric() {
	fmt.Println(IsAlphanumeric("HTTPS://PAY.EXAMPLE"), IsAlphanumeric("https://pay.example"))
	// Output: true false
}
