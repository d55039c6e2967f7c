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
	"sync/atomic"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api/qr"
)

var (
	codes = flag.Int("codes", 200, "number of codes that TestReadable reads with each decoder")
	seed  = flag.Uint64("seed", 9, "random seed of the codes of TestReadable")
)

// sheetSide is the width and height, in codes, of the sheets for zbar.
const sheetSide = 5

// distortions simulate what happens to a code before a scanner sees it.
var distortions = []struct {
	name    string
	distort func(*image.Gray, *rand.Rand) *image.Gray
}{
	{"unchanged", func(g *image.Gray, _ *rand.Rand) *image.Gray { return g }},
	{"blurred", func(g *image.Gray, _ *rand.Rand) *image.Gray { return blur(blur(g, 2), 2) }},
	{"rotated", func(g *image.Gray, r *rand.Rand) *image.Gray { return transform(g, r.Float64()*2*math.Pi, 1) }},
	{"scaled", func(g *image.Gray, r *rand.Rand) *image.Gray { return transform(g, 0, 0.6+r.Float64()) }},
	{"blurred, rotated and scaled", func(g *image.Gray, r *rand.Rand) *image.Gray {
		return blur(transform(g, r.Float64()*2*math.Pi, 0.7+0.6*r.Float64()), 1)
	}},
}

// Two independent decoders read codes of typical hosts: gozxing and, if installed, zbar (the
// program zbarimg). Four in ten codes are distorted. This command reads many more:
//
//	go test ./api/qr -run TestReadable -codes 100000 -timeout 2h
func TestReadable(t *testing.T) {
	t.Parallel()
	zbar, err := exec.LookPath("zbarimg")
	if err != nil {
		t.Log("zbarimg is not installed: reading with gozxing only")
	}
	var group errgroup.Group
	group.SetLimit(2)
	for first := 0; first < *codes; first += sheetSide * sheetSide {
		group.Go(func() error {
			sheet := newSheet(first)
			err := sheet.readEach()
			if zbar != "" {
				err = errors.Join(err, sheet.readBy(t, zbar))
			}
			if err != nil {
				t.Error(err)
			}
			return nil
		})
	}
	_ = group.Wait()
	t.Logf("read %d codes; gozxing needed several pictures of %d codes, at most %d",
		*codes, retried.Load(), maxPictures.Load())
}

// retried counts the codes that gozxing read only from a later picture. maxPictures is the maximum
// number of pictures of a code.
var retried, maxPictures atomic.Int64

// sheet is a group of codes with the same distortion.
type sheet struct {
	how      string
	distort  func(*image.Gray, *rand.Rand) *image.Gray
	random   *rand.Rand
	contents []string
	clean    []*image.Gray
	pictures []*image.Gray // the distorted codes
}

// newSheet makes the codes from the given number on. They are the same in every run with the same
// seed.
func newSheet(first int) *sheet {
	hosts := []string{
		"HTTPS://PAY.EXAMPLE", "HTTPS://CHECKOUT.EXAMPLE.COM", "HTTP://127.0.0.1:8080",
		"HTTPS://CHECKOUT.BILLING.A-LONG-NAME.EXAMPLE.COM",
	}
	random := rand.New(rand.NewPCG(*seed, uint64(first)))
	distortion := distortions[max(0, first/sheetSide/sheetSide%10-5)] // six in ten are unchanged
	s := &sheet{how: distortion.name, distort: distortion.distort, random: random}
	for range sheetSide * sheetSide {
		prefix, ending := hosts[random.IntN(len(hosts))]+"/P/", make([]byte, 16)
		for i := range ending {
			ending[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[random.IntN(32)]
		}
		encoded, err := qr.NewSeries(prefix, len(ending)).PNG(string(ending))
		if err != nil {
			panic(err) // these contents are short enough
		}
		picture, err := png.Decode(bytes.NewReader(encoded))
		if err != nil {
			panic(err) // other tests check the PNG
		}
		gray := image.NewGray(picture.Bounds())
		draw.Draw(gray, gray.Rect, picture, image.Point{}, draw.Src)
		s.contents = append(s.contents, prefix+string(ending))
		s.clean = append(s.clean, gray)
		s.pictures = append(s.pictures, distortion.distort(gray, random))
	}
	return s
}

// frames is the maximum number of pictures of a code, like those of a camera in a second.
const frames = 30

// readEach reads every picture with gozxing. If gozxing cannot read a picture, it gets further
// pictures of the code, slightly moved and distorted anew, like a camera in a hand.
func (s *sheet) readEach() error {
	for i, picture := range s.pictures {
		n := 1
		text, err := s.read(picture)
		for ; n < frames && (err != nil || text != s.contents[i]); n++ {
			moved := transform(s.clean[i], (s.random.Float64()-0.5)/5, 0.85+0.3*s.random.Float64())
			text, err = s.read(s.distort(moved, s.random))
		}
		if err != nil || text != s.contents[i] {
			return fmt.Errorf("%q, %s: gozxing reads %q, %w", s.contents[i], s.how, text, err)
		}
		countPictures(n)
	}
	return nil
}

// countPictures records the number of pictures that gozxing needed for a code.
func countPictures(pictures int) {
	if pictures > 1 {
		retried.Add(1)
	}
	for n := int64(pictures); ; {
		if before := maxPictures.Load(); n <= before || maxPictures.CompareAndSwap(before, n) {
			return
		}
	}
}

func (s *sheet) read(picture *image.Gray) (string, error) {
	source := gozxing.NewLuminanceSourceFromImage(picture)
	text, err := s.decode(gozxing.NewHybridBinarizer(source), nil)
	if err != nil {
		text, err = s.decode(gozxing.NewGlobalHistgramBinarizer(source), nil)
	}
	if err != nil && s.how == distortions[0].name {
		text, err = s.decode(gozxing.NewGlobalHistgramBinarizer(source), pure)
	}
	return text, err
}

func (s *sheet) decode(binarizer gozxing.Binarizer, hints map[gozxing.DecodeHintType]any) (string, error) {
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

// readBy reads all pictures with zbar from one sheet, and reads those that it misses one by one.
func (s *sheet) readBy(t *testing.T, zbar string) error {
	side := 0
	for _, p := range s.pictures {
		side = max(side, p.Rect.Dx(), p.Rect.Dy())
	}
	page := white(sheetSide*side, sheetSide*side)
	for i, p := range s.pictures {
		draw.Draw(page, p.Rect.Add(image.Pt(i%sheetSide*side, i/sheetSide*side)), p, image.Point{}, draw.Src)
	}
	got := runZbar(t, zbar, page)
	for i, p := range s.pictures {
		if !slices.Contains(got, s.contents[i]) && !slices.Contains(runZbar(t, zbar, p), s.contents[i]) {
			return fmt.Errorf("%q, %s: zbar cannot read it", s.contents[i], s.how)
		}
	}
	if i := slices.IndexFunc(got, func(text string) bool { return !slices.Contains(s.contents, text) }); i >= 0 {
		return fmt.Errorf("%s: zbar reads %q, which is no code of the sheet", s.how, got[i])
	}
	return nil
}

// runZbar returns the contents that zbar reads in a picture.
func runZbar(t *testing.T, zbar string, g *image.Gray) []string {
	path := filepath.Join(t.TempDir(), "picture.pgm")
	pgm := append(fmt.Appendf(nil, "P5 %d %d 255\n", g.Rect.Dx(), g.Rect.Dy()), g.Pix...)
	if err := os.WriteFile(path, pgm, 0o600); err != nil {
		t.Error(err)
	}
	defer func() { _ = os.Remove(path) }()
	out, err := exec.CommandContext(t.Context(), zbar, "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable", path).
		Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // zbar fails if it finds no code
		t.Error(err)
	}
	return strings.Fields(string(out))
}

func white(width, height int) *image.Gray {
	g := image.NewGray(image.Rect(0, 0, width, height))
	for i := range g.Pix {
		g.Pix[i] = 255
	}
	return g
}

// transform rotates a picture about its centre, by radians, and scales it.
func transform(g *image.Gray, angle, scale float64) *image.Gray {
	sin, cos := math.Sincos(angle)
	side := int(math.Ceil(float64(g.Rect.Dx()) * scale * (math.Abs(sin) + math.Abs(cos))))
	transformed := white(side, side)
	from, to := float64(g.Rect.Dx())/2-0.5, float64(side)/2-0.5
	for y := range side {
		for x := range side {
			dx, dy := (float64(x)-to)/scale, (float64(y)-to)/scale
			transformed.Pix[y*transformed.Stride+x] = interpolate(g, from+dx*cos+dy*sin, from-dx*sin+dy*cos)
		}
	}
	return transformed
}

// interpolate returns the shade at a point from the four pixels around it. Pixels outside of the
// picture are white.
func interpolate(g *image.Gray, x, y float64) uint8 {
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

// blur gives every pixel the mean of the pixels within a radius.
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
