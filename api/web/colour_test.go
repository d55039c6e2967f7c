package web_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/api/web"
)

// variables are the colours of a partner's pages, as the style sheet has them.
type variables struct{ brand, on, accent, darkAccent string }

var variablesRule = regexp.MustCompile(`^:root\{--brand:(#[0-9a-f]{6});--on:(#[0-9a-f]{6});--accent:(#[0-9a-f]{6})\}` +
	`@media\(prefers-color-scheme:dark\)\{:root\{--accent:(#[0-9a-f]{6})\}\}$`)

func variablesOf(t require, hosted web.Hosted) variables {
	t.Helper()
	match := variablesRule.FindStringSubmatch(string(hosted.Colours()))
	if match == nil {
		t.Fatalf("the style sheet is %s", hosted.Colours())
	}
	return variables{match[1], match[2], match[3], match[4]}
}

// require is the part of a test that variablesOf uses.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
}

func TestColoursOfPages(t *testing.T) {
	for _, tt := range []struct {
		colour string
		want   variables
	}{
		{"#1f5fae", variables{"#1f5fae", "#ffffff", "#1f5fae", "#6994c9"}},
		{"#ffff99", variables{"#ffff99", "#000000", "#6c6c41", "#ffff99"}},
		{"#101010", variables{"#101010", "#ffffff", "#101010", "#939393"}},
		{"#ffffff", variables{"#ffffff", "#000000", "#6c6c6c", "#ffffff"}},
		{"#000000", variables{"#000000", "#ffffff", "#000000", "#939393"}},
		{"#ff6600", variables{"#ff6600", "#000000", "#b74900", "#ff6600"}},
		{"#767676", variables{"#767676", "#ffffff", "#6d6d6d", "#929292"}}, // the lightest grey under white text
		{"#777777", variables{"#777777", "#000000", "#6c6c6c", "#939393"}},
	} {
		if got := variablesOf(t, web.Hosted{Colour: tt.colour}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.colour, got, tt.want)
		}
	}
}

// A partner without a colour has one of a few by its name, the same on all its pages.
func TestColoursByName(t *testing.T) {
	seen := map[string]bool{}
	for i := range 100 {
		name := fmt.Sprint("partner ", i)
		colours := variablesOf(t, web.Hosted{Organisation: name})
		seen[colours.brand] = true
		if again := variablesOf(t, web.Hosted{Organisation: name, Site: "another", Sandbox: true}); again != colours {
			t.Errorf("%s: %+v, then %+v", name, colours, again)
		}
		if own := variablesOf(t, web.Hosted{Organisation: name, Colour: "#ffff99"}); own.brand != "#ffff99" {
			t.Errorf("%s: %+v", name, own)
		}
	}
	if len(seen) != 6 {
		t.Errorf("100 names have %d colours", len(seen))
	}
}

// groundRule matches the grounds of text in the palette: three in light, then three in dark.
var groundRule = regexp.MustCompile(`--(?:ground|card|tint):(#[0-9a-f]+)`)

// Every colour that a partner may choose leaves its pages legible in light and dark.
func TestEveryColourIsLegible(t *testing.T) {
	var grounds []string
	for _, match := range groundRule.FindAllStringSubmatch(web.Palette, -1) {
		grounds = append(grounds, match[1])
	}
	if len(grounds) != 6 {
		t.Fatalf("the palette has the grounds %q", grounds)
	}
	light, dark := grounds[:3], grounds[3:]
	rapid.Check(t, func(t *rapid.T) {
		channels := rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "channels")
		colour := "#" + hex.EncodeToString(channels)
		got := variablesOf(t, web.Hosted{Colour: colour})
		if got.brand != colour {
			t.Errorf("the brand's colour is %s", got.brand)
		}
		legible := func(text string, grounds ...string) bool {
			return !slices.ContainsFunc(grounds, func(g string) bool { return contrast(t, text, g) < 4.5 })
		}
		if !legible(got.on, got.brand) || !legible(got.accent, light...) || !legible(got.darkAccent, dark...) {
			t.Errorf("not legible: %+v", got)
		}
		if legible(colour, light...) && got.accent != colour || legible(colour, dark...) && got.darkAccent != colour {
			t.Errorf("%s needs no change: %+v", colour, got)
		}
	})
}

// contrast is the contrast of two colours, as WCAG defines it.
func contrast(t require, one, other string) float64 {
	t.Helper()
	a, b := luminance(t, one), luminance(t, other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

// luminance is the relative luminance of a colour, as WCAG defines it.
func luminance(t require, colour string) float64 {
	t.Helper()
	channels, err := hex.DecodeString(strings.TrimPrefix(colour, "#"))
	if err != nil || len(channels) != 3 {
		t.Fatalf("%s is no colour", colour)
	}
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(channels[i]) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}
