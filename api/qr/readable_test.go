package qr_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api/qr"
)

var codes = flag.Int("codes", 2000, "codes that TestReadable has read back by each decoder")

// sheetSide is how many codes wide and high the sheets are that zbar gets.
const sheetSide = 5

// spoilings are what a code may go through until a scanner sees it.
var spoilings = []struct {
	name  string
	spoil func(*image.Gray, *rand.Rand) *image.Gray
}{
	{"as it is", func(g *image.Gray, _ *rand.Rand) *image.Gray { return g }},
	{"blurred", func(g *image.Gray, _ *rand.Rand) *image.Gray { return blur(blur(g, 2), 2) }},
	{"rotated", func(g *image.Gray, r *rand.Rand) *image.Gray { return turn(g, r.Float64()*2*math.Pi, 1) }},
	{"scaled", func(g *image.Gray, r *rand.Rand) *image.Gray { return turn(g, 0, 0.6+r.Float64()) }},
	{"all of it", func(g *image.Gray, r *rand.Rand) *image.Gray {
		return blur(turn(g, r.Float64()*2*math.Pi, 0.7+0.6*r.Float64()), 1)
	}},
}

// TestReadable has two decoders of other people's read codes: gozxing, and zbar where it is installed (the program
// zbarimg). The codes are of usual hosts, and blurred, rotated and scaled in turns. Many more than usual are read by
// go test ./api/qr -run TestReadable -codes 100000 -timeout 2h.
func TestReadable(t *testing.T) {
	t.Parallel()
	zbar, err := exec.LookPath("zbarimg")
	if err != nil {
		t.Log("without zbarimg: gozxing alone")
	}
	var group errgroup.Group
	group.SetLimit(2)
	for first := 0; first < *codes; first += sheetSide * sheetSide {
		group.Go(func() error {
			sheet := newSheet(first)
			if err := sheet.readEach(); err != nil || zbar == "" {
				return err
			}
			return sheet.readBy(t, zbar)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// sheet is some codes that went through the same.
type sheet struct {
	how      string
	contents []string
	pictures []*image.Gray
}

// newSheet makes the codes from a number on; the same ones at every run.
func newSheet(first int) *sheet {
	hosts := []string{"HTTPS://PAY.EXAMPLE", "HTTPS://CHECKOUT.EXAMPLE.COM", "HTTP://127.0.0.1:8080", "HTTPS://CHECKOUT.BILLING.A-LONG-NAME.EXAMPLE.COM"}
	random := rand.New(rand.NewPCG(9, uint64(first)))
	spoiling := spoilings[first/sheetSide/sheetSide%len(spoilings)]
	s := &sheet{how: spoiling.name}
	for range sheetSide * sheetSide {
		prefix, ending := hosts[random.IntN(len(hosts))]+"/P/", make([]byte, 16)
		for i := range ending {
			ending[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[random.IntN(32)]
		}
		encoded, err := qr.NewSeries(prefix, len(ending)).PNG(string(ending))
		if err != nil {
			panic(err) // no such prefix is too long
		}
		picture, err := png.Decode(bytes.NewReader(encoded))
		if err != nil {
			panic(err) // other tests look at the PNG
		}
		gray := image.NewGray(picture.Bounds())
		draw.Draw(gray, gray.Rect, picture, image.Point{}, draw.Src)
		s.contents = append(s.contents, prefix+string(ending))
		s.pictures = append(s.pictures, spoiling.spoil(gray, random))
	}
	return s
}

// readEach has gozxing read every picture, as one that was taken with a camera. Like a camera it may look again, in other
// light: its search misjudges a module's size now and then, also in pictures of nothing but a code.
func (s *sheet) readEach() error {
	for i, picture := range s.pictures {
		source := gozxing.NewLuminanceSourceFromImage(picture)
		if text, err := s.look(gozxing.NewHybridBinarizer(source), nil); err == nil && text == s.contents[i] {
			continue
		}
		text, err := s.look(gozxing.NewGlobalHistgramBinarizer(source), nil)
		if err != nil && s.how == spoilings[0].name {
			text, err = s.look(gozxing.NewGlobalHistgramBinarizer(source), pure)
		}
		if err != nil || text != s.contents[i] {
			return fmt.Errorf("%q, %s: gozxing reads %q, %w", s.contents[i], s.how, text, err)
		}
	}
	return nil
}

func (s *sheet) look(binarizer gozxing.Binarizer, hints map[gozxing.DecodeHintType]any) (string, error) {
	bitmap, err := gozxing.NewBinaryBitmap(binarizer)
	if err != nil {
		return "", err
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, hints)
	if err != nil {
		return "", err
	}
	return result.GetText(), nil
}

// readBy has zbar read all pictures at once.
func (s *sheet) readBy(t *testing.T, zbar string) error {
	side := 0
	for _, p := range s.pictures {
		side = max(side, p.Rect.Dx(), p.Rect.Dy())
	}
	whole := white(sheetSide*side, sheetSide*side)
	for i, p := range s.pictures {
		draw.Draw(whole, p.Rect.Add(image.Pt(i%sheetSide*side, i/sheetSide*side)), p, image.Point{}, draw.Src)
	}
	path := filepath.Join(t.TempDir(), "sheet.pgm")
	pgm := append(fmt.Appendf(nil, "P5 %d %d 255\n", whole.Rect.Dx(), whole.Rect.Dy()), whole.Pix...)
	if err := os.WriteFile(path, pgm, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	out, err := exec.CommandContext(t.Context(), zbar, "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable", path).Output()
	got, want := strings.Fields(string(out)), slices.Sorted(slices.Values(s.contents))
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%s: zbar reads %d of %d codes, %w", s.how, len(got), len(want), errors.Join(err))
	}
	return nil
}

func white(width, height int) *image.Gray {
	g := image.NewGray(image.Rect(0, 0, width, height))
	for i := range g.Pix {
		g.Pix[i] = 255
	}
	return g
}

// turn rotates a picture about its centre, by radians, and scales it.
func turn(g *image.Gray, angle, scale float64) *image.Gray {
	sin, cos := math.Sincos(angle)
	side := int(math.Ceil(float64(g.Rect.Dx()) * scale * (math.Abs(sin) + math.Abs(cos))))
	turned := white(side, side)
	from, to := float64(g.Rect.Dx())/2-0.5, float64(side)/2-0.5
	for y := range side {
		for x := range side {
			dx, dy := (float64(x)-to)/scale, (float64(y)-to)/scale
			turned.Pix[y*turned.Stride+x] = between(g, from+dx*cos+dy*sin, from-dx*sin+dy*cos)
		}
	}
	return turned
}

// between is the shade between four pixels; white outside.
func between(g *image.Gray, x, y float64) uint8 {
	x0, y0 := math.Floor(x), math.Floor(y)
	shade := 0.0
	for _, corner := range [][2]float64{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		weight := (1 - math.Abs(x-x0-corner[0])) * (1 - math.Abs(y-y0-corner[1]))
		pixel := 255.0
		if at := image.Pt(int(x0+corner[0]), int(y0+corner[1])); at.In(g.Rect) {
			pixel = float64(g.Pix[at.Y*g.Stride+at.X])
		}
		shade += weight * pixel
	}
	return uint8(shade)
}

// blur gives every pixel the mean of those at most a radius away.
func blur(g *image.Gray, radius int) *image.Gray {
	blurred := image.NewGray(g.Rect)
	for y := range g.Rect.Dy() {
		for x := range g.Rect.Dx() {
			sum, n := 0, 0
			for v := max(0, y-radius); v <= min(g.Rect.Dy()-1, y+radius); v++ {
				for _, pixel := range g.Pix[v*g.Stride+max(0, x-radius) : v*g.Stride+min(g.Rect.Dx()-1, x+radius)+1] {
					sum += int(pixel)
					n++
				}
			}
			blurred.Pix[y*blurred.Stride+x] = uint8(sum / n)
		}
	}
	return blurred
}
