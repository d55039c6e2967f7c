package web

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"regexp"
	"strings"
)

// minContrast is the minimum contrast of text with its background in WCAG 2.2, level AA. The hosted
// pages show an organisation's colour, or a shade of it that keeps this contrast.
const minContrast = 4.5

// rgb is a colour: red, green and blue in sRGB.
type rgb [3]uint8

var black, white = rgb{}, rgb{255, 255, 255}

// parseRGB parses "#rrggbb". It reports false for another text.
func parseRGB(text string) (c rgb, ok bool) {
	digits, hash := strings.CutPrefix(text, "#")
	channels, err := hex.DecodeString(digits)
	if !hash || err != nil || len(channels) != len(c) {
		return rgb{}, false
	}
	return rgb(channels), true
}

// String writes the colour as parseRGB reads it.
func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]) }

// luminance returns the relative luminance as WCAG defines it, from 0 to 1.
func (c rgb) luminance() float64 {
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}

// linear removes the gamma of sRGB from a channel.
func linear(channel uint8) float64 {
	v := float64(channel) / 255
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

// contrast returns the contrast of two colours as WCAG defines it, from 1 to 21.
func contrast(a, b rgb) float64 {
	light, dark := a.luminance(), b.luminance()
	if light < dark {
		light, dark = dark, light
	}
	return (light + 0.05) / (dark + 0.05)
}

// mixed returns the colour mixed with another one. part, from 0 to 1, is the share of the other.
func (c rgb) mixed(other rgb, part float64) rgb {
	for i := range c {
		c[i] = uint8(math.Round(float64(c[i])*(1-part) + float64(other[i])*part))
	}
	return c
}

// label returns the colour of text on c: white if it is legible, otherwise black. One of them is
// legible on every colour.
func (c rgb) label() rgb {
	if contrast(white, c) >= minContrast {
		return white
	}
	return black
}

// scheme is a colour scheme of the pages, light or dark.
type scheme struct {
	grounds []rgb // the background colours of text
	far     rgb   // the colour that contrasts most with them: black or white
}

// The schemes, from the palette.
var (
	lightPalette, darkPalette, _ = strings.Cut(Palette, "@media(prefers-color-scheme:dark)")

	lightScheme = scheme{groundsIn(lightPalette), black}
	darkScheme  = scheme{groundsIn(darkPalette), white}
)

// groundRule matches a background colour of text in the palette.
var groundRule = regexp.MustCompile(`--(?:ground|card|tint):(#[0-9a-f]{6})\b`)

// groundsIn returns the background colours of text in a palette.
func groundsIn(palette string) (grounds []rgb) {
	for _, match := range groundRule.FindAllStringSubmatch(palette, -1) {
		if ground, ok := parseRGB(match[1]); ok {
			grounds = append(grounds, ground)
		}
	}
	return grounds
}

// accentSteps is the number of steps in which accent mixes a colour with the far colour.
const accentSteps = 64

// accent returns a colour near c that is legible on every ground. It mixes c with the scheme's far
// colour in steps, and takes the first legible mixture.
func (s scheme) accent(c rgb) rgb {
	for step := range accentSteps {
		if mixed := c.mixed(s.far, float64(step)/accentSteps); s.legible(mixed) {
			return mixed
		}
	}
	return s.far
}

// legible reports whether text of a colour is legible on every ground.
func (s scheme) legible(c rgb) bool {
	for _, ground := range s.grounds {
		if contrast(c, ground) < minContrast {
			return false
		}
	}
	return true
}

// derivedColours are the colours for organisations without a colour of their own.
var derivedColours = [...]rgb{
	{0x1f, 0x5f, 0xae}, {0x0f, 0x6b, 0x5c}, {0x6b, 0x3f, 0xa0},
	{0x7a, 0x52, 0x00}, {0xa0, 0x2c, 0x6b}, {0x3d, 0x5a, 0x80},
}

// colourOf returns the colour of an organisation without a colour of its own. It depends on the
// name alone, so that all pages of the organisation have the same colour.
func colourOf(name string) rgb {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name)) // never fails
	return derivedColours[sum.Sum32()%uint32(len(derivedColours))]
}

// variables returns the style sheet of an organisation's colour c. --brand is the colour itself,
// and --on the colour of text on it. --accent is the colour of text and lines on the backgrounds of
// the palette.
func (c rgb) variables() template.CSS {
	return template.CSS(fmt.Sprintf( //nolint:gosec // made of colours
		":root{--brand:%s;--on:%s;--accent:%s}@media(prefers-color-scheme:dark){:root{--accent:%s}}",
		c, c.label(), lightScheme.accent(c), darkScheme.accent(c)))
}
