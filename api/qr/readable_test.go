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
	codes = flag.Int("codes", 200, "codes that TestReadable has read back by each decoder")
	seed  = flag.Uint64("seed", 9, "which codes TestReadable makes")
)

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
// zbarimg). The codes are of usual hosts; four in ten are blurred, rotated, scaled, or all of it. Many more are read by
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
	t.Logf("%d codes read, by gozxing all but %d from the first picture, one from as many as %d", *codes, again.Load(), most.Load())
}

// again counts the codes that gozxing had to see more than once, and most is how often it had to see one.
var again, most atomic.Int64

// sheet is some codes that went through the same.
type sheet struct {
	how      string
	spoil    func(*image.Gray, *rand.Rand) *image.Gray
	random   *rand.Rand
	contents []string
	clean    []*image.Gray
	pictures []*image.Gray // the clean ones, spoiled
}

// newSheet makes the codes from a number on; the same ones at every run.
func newSheet(first int) *sheet {
	hosts := []string{"HTTPS://PAY.EXAMPLE", "HTTPS://CHECKOUT.EXAMPLE.COM", "HTTP://127.0.0.1:8080", "HTTPS://CHECKOUT.BILLING.A-LONG-NAME.EXAMPLE.COM"}
	random := rand.New(rand.NewPCG(*seed, uint64(first)))
	spoiling := spoilings[max(0, first/sheetSide/sheetSide%10-5)] // six in ten as they are
	s := &sheet{how: spoiling.name, spoil: spoiling.spoil, random: random}
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
		s.clean = append(s.clean, gray)
		s.pictures = append(s.pictures, spoiling.spoil(gray, random))
	}
	return s
}

// frames is how many pictures of a code a decoder may see: those that a camera takes in a second.
const frames = 30

// readEach has gozxing read every picture, as one that was taken with a camera. Now and then its search takes data for a finder
// pattern, or misjudges where the modules are; then it sees the code as a hand holds it that is never quite still, and spoiled anew.
func (s *sheet) readEach() error {
	for i, picture := range s.pictures {
		n := 1
		text, err := s.read(picture)
		for ; n < frames && (err != nil || text != s.contents[i]); n++ {
			moved := turn(s.clean[i], (s.random.Float64()-0.5)/5, 0.85+0.3*s.random.Float64())
			text, err = s.read(s.spoil(moved, s.random))
		}
		if err != nil || text != s.contents[i] {
			return fmt.Errorf("%q, %s: gozxing reads %q, %w", s.contents[i], s.how, text, err)
		}
		seen(n)
	}
	return nil
}

// seen counts how often gozxing had to see a code.
func seen(pictures int) {
	if pictures > 1 {
		again.Add(1)
	}
	for n := int64(pictures); ; {
		if before := most.Load(); n <= before || most.CompareAndSwap(before, n) {
			return
		}
	}
}

func (s *sheet) read(picture *image.Gray) (string, error) {
	source := gozxing.NewLuminanceSourceFromImage(picture)
	text, err := s.look(gozxing.NewHybridBinarizer(source), nil)
	if err != nil {
		text, err = s.look(gozxing.NewGlobalHistgramBinarizer(source), nil)
	}
	if err != nil && s.how == spoilings[0].name {
		text, err = s.look(gozxing.NewGlobalHistgramBinarizer(source), pure)
	}
	return text, err
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

// readBy has zbar read all pictures at once, and by itself each that it overlooks in the crowd.
func (s *sheet) readBy(t *testing.T, zbar string) error {
	side := 0
	for _, p := range s.pictures {
		side = max(side, p.Rect.Dx(), p.Rect.Dy())
	}
	crowd := white(sheetSide*side, sheetSide*side)
	for i, p := range s.pictures {
		draw.Draw(crowd, p.Rect.Add(image.Pt(i%sheetSide*side, i/sheetSide*side)), p, image.Point{}, draw.Src)
	}
	got := runZbar(t, zbar, crowd)
	for i, p := range s.pictures {
		if !slices.Contains(got, s.contents[i]) && !slices.Contains(runZbar(t, zbar, p), s.contents[i]) {
			return fmt.Errorf("%q, %s: zbar cannot read it", s.contents[i], s.how)
		}
	}
	if i := slices.IndexFunc(got, func(text string) bool { return !slices.Contains(s.contents, text) }); i >= 0 {
		return fmt.Errorf("%s: zbar reads %q, which is not there", s.how, got[i])
	}
	return nil
}

// runZbar is what zbar reads in a picture.
func runZbar(t *testing.T, zbar string, g *image.Gray) []string {
	path := filepath.Join(t.TempDir(), "picture.pgm")
	pgm := append(fmt.Appendf(nil, "P5 %d %d 255\n", g.Rect.Dx(), g.Rect.Dy()), g.Pix...)
	if err := os.WriteFile(path, pgm, 0o600); err != nil {
		t.Error(err)
	}
	defer func() { _ = os.Remove(path) }()
	out, err := exec.CommandContext(t.Context(), zbar, "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable", path).Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // it fails if it finds none
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
