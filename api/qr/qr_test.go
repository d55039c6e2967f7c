package qr_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"go.uber.org/goleak"

	"partnerbilling/api/qr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const code = "/P/ABCDEFGHIJKLMNOP"

// pure tells the decoder that the picture contains only the code, because its search for codes in
// photographs is not under test.
var pure = map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}

// read decodes a picture with an independent decoder.
func read(t testing.TB, picture image.Image) *gozxing.Result {
	t.Helper()
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, pure)
	if err != nil {
		t.Fatalf("the picture is unreadable: %v", err)
	}
	return result
}

// check checks the content, the error correction level and the format of a PNG.
func check(t testing.TB, encoded []byte, content string) {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	result := read(t, picture)
	if result.GetText() != content {
		t.Fatalf("the picture reads as %q, want %q", result.GetText(), content)
	}
	metadata := result.GetResultMetadata()
	if level := fmt.Sprint(metadata[gozxing.ResultMetadataType_ERROR_CORRECTION_LEVEL]); level != "M" {
		t.Errorf("error correction %s", level)
	}
	checkPicture(t, picture)
}

func checkPicture(t testing.TB, picture image.Image) {
	t.Helper()
	paletted, ok := picture.(*image.Paletted)
	if !ok || len(paletted.Palette) != 2 || paletted.Palette[0] != (color.RGBA{255, 255, 255, 255}) ||
		paletted.Palette[1] != (color.RGBA{0, 0, 0, 255}) {
		t.Fatalf("the picture has another type or palette: %T", picture)
	}
	size := picture.Bounds()
	if size.Dx() < 256 || size.Dx() != size.Dy() {
		t.Errorf("size %v", size)
	}
	dark := darkPart(paletted)
	corner := 0 // the first line of the upper left finder pattern is seven modules wide
	for paletted.ColorIndexAt(dark.Min.X+corner, dark.Min.Y) == 1 {
		corner++
	}
	module := corner / 7
	want := size.Inset(4 * module)
	if corner%7 != 0 || dark != want {
		t.Errorf("modules of %d pixels, dark within %v of %v, want %v", module, dark, size, want)
	}
}

// alphanumeric returns a random text of the alphanumeric mode.
func alphanumeric(random *rand.Rand, length int) string {
	const characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
	text := make([]byte, length)
	for i := range text {
		text[i] = characters[random.IntN(len(characters))]
	}
	return string(text)
}

func darkPart(p *image.Paletted) image.Rectangle {
	var dark image.Rectangle
	for y := range p.Rect.Dy() {
		line := p.Pix[y*p.Stride : y*p.Stride+p.Rect.Dx()]
		if first := bytes.IndexByte(line, 1); first >= 0 {
			dark = dark.Union(image.Rect(first, y, bytes.LastIndexByte(line, 1)+1, y+1))
		}
	}
	return dark
}

// Codes of public base URLs of all lengths are readable.
func TestLengthsOfBaseURLs(t *testing.T) {
	t.Parallel()
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
	random := rand.New(rand.NewPCG(1, 2))
	for length := 1; length <= 260; length += 1 + length/64 { // a host name has at most 253 characters
		host := make([]byte, length)
		for i := range host {
			host[i] = letters[random.IntN(len(letters))]
		}
		content := []string{"HTTP://", "HTTPS://"}[length%2] + string(host) + code
		if !qr.IsAlphanumeric(content) {
			t.Fatalf("%q is not alphanumeric", content)
		}
		encoded, err := qr.PNG(content)
		if err != nil {
			t.Fatal(err)
		}
		check(t, encoded, content)
	}
}

// A Series makes the same pictures as the encoder, for prefixes of both parities and all versions.
func TestSeries(t *testing.T) {
	t.Parallel()
	for _, length := range []int{20, 23, 47, 80, 107, 138, 165, 196, 231, 270, 361} {
		checkSeries(t, length, 3+length%2, 4)
	}
	checkSeries(t, 34, 16, 100)
	checkSeries(t, 35, 16, 100)
	// The lengths and prefixes of these two Series concatenate to the same text.
	random := rand.New(rand.NewPCG(1, 1))
	checkPrefix(t, random, "HTTPS://PAY.EXAMPLE/Q/", 16, 2)
	checkPrefix(t, random, "6HTTPS://PAY.EXAMPLE/Q/", 1, 2)
}

// checkSeries compares the pictures of a Series with the encoder's.
func checkSeries(t *testing.T, length, ending, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(length)))
	checkPrefix(t, random, alphanumeric(random, length), ending, n)
}

func checkPrefix(t *testing.T, random *rand.Rand, prefix string, ending, n int) {
	t.Helper()
	series := qr.NewSeries(prefix, ending)
	for range n {
		content := alphanumeric(random, ending)
		got, err := series.PNG(content)
		want, wantErr := qr.PNG(prefix + content)
		if err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: the picture differs from the encoder's: %v, %v", prefix+content, err, wantErr)
		}
	}
}

// Every printable character is readable, in either mode.
func TestEveryCharacter(t *testing.T) {
	t.Parallel()
	for c := ' '; c <= '~'; c++ {
		content := "HTTP://" + string(c) + code
		encoded, err := qr.PNG(content)
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		check(t, encoded, content)
	}
}

// Codes of typical hosts have version 3, and those of short hosts version 2.
func TestSizes(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]int{
		"HTTPS://PAY.EXAMPLE" + code:                  8 * (25 + 8), // 38 characters: version 2
		"HTTPS://PAY.EXAMPLE.X" + code:                8 * (29 + 8),
		"HTTPS://CHECKOUT.BILLING.EXAMPLE.COM" + code: 8 * (29 + 8),
	} {
		encoded, err := qr.PNG(content)
		if err != nil {
			t.Fatal(err)
		}
		config, err := png.DecodeConfig(bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
		if config.Width != want || len(encoded) > 1000 {
			t.Errorf("%q: %d pixels in %d bytes, want %d pixels", content, config.Width, len(encoded), want)
		}
	}
}

func TestDataURI(t *testing.T) {
	t.Parallel()
	content := "HTTPS://PAY.EXAMPLE" + code
	uri, err := qr.NewSeries("HTTPS://PAY.EXAMPLE/P/", 16).AppendDataURI([]byte(`"`), content[len(content)-16:])
	if err != nil {
		t.Fatal(err)
	}
	text, ok := strings.CutPrefix(string(uri), `"data:image/png;base64,`)
	encoded, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil {
		t.Fatalf("%.40q, %v", uri, err)
	}
	check(t, encoded, content)
}

func TestInvalidContents(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]error{
		"HTTPS://BÜCHER.EXAMPLE":  qr.ErrNotASCII,
		"A\x00B":                  qr.ErrNotASCII,
		"A\x7fB":                  qr.ErrNotASCII,
		strings.Repeat("A", 4000): qr.ErrTooLong,
		strings.Repeat("a", 4000): qr.ErrTooLong,
	} {
		if _, err := qr.PNG(content); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", content, err, want)
		}
		if _, err := qr.NewSeries(content[:2], len(content)-2).PNG(content[2:]); !errors.Is(err, want) {
			t.Errorf("%.20q as a series: %v, want %v", content, err, want)
		}
	}
}

func BenchmarkSeries(b *testing.B) {
	for _, host := range []string{"PAY.EXAMPLE", "CHECKOUT.BILLING.EXAMPLE.COM"} {
		prefix, ending := "HTTPS://"+host+"/P/", "ABCDEFGHIJKLMNOP"
		b.Run(fmt.Sprint("encoder ", host), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := qr.PNG(prefix + ending); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint("series ", host), func(b *testing.B) {
			series := qr.NewSeries(prefix, len(ending))
			uri, err := series.AppendDataURI(nil, ending)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if uri, err = series.AppendDataURI(uri[:0], ending); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(uri)), "bytes")
		})
	}
}
