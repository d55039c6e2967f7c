package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"partnerbilling/models"
)

// deceptive returns the characters that references and displayed text must not contain.
func deceptive() []rune {
	list := []rune{0x061C, 0x200B, 0x200E, 0x200F, 0xFEFF}
	for r := rune(0x202A); r <= 0x202E; r++ {
		list = append(list, r)
	}
	for r := rune(0x2060); r <= 0x2069; r++ {
		list = append(list, r)
	}
	return list
}

func TestValidateReference(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]error{
		"a": nil, "2026/11 #7+é": nil, " ": nil, "...": nil, "e\u0301": nil, "\u00e9": nil, "नमस्ते": nil,
		"\u202f": nil, "\u00ad": nil,
		"क्\u200dष": nil, "می\u200cخواهم": nil, "👩\u200d👩\u200d👧": nil, "مرحبا": nil, "שלום": nil, "\u3000": nil,
		strings.Repeat("😀", 128): nil,
		"":                       models.ErrReferenceLength, strings.Repeat("😀",
			129): models.ErrReferenceLength, "a\xff": models.ErrReferenceLength,
		".": models.ErrReferenceDots, "..": models.ErrReferenceDots,
		"a\x00": models.ErrReferenceControl, "\t": models.ErrReferenceControl, "a\n": models.ErrReferenceControl,
		"\x7f": models.ErrReferenceControl, "\u0085": models.ErrReferenceControl,
	} {
		if err := models.ValidateReference(s); !errors.Is(err, want) || err != nil && want == nil {
			t.Errorf("%.40q: %v, want %v", s, err, want)
		}
	}
	for _, r := range deceptive() {
		for _, s := range []string{string(r), "a" + string(r), string(r) + "b"} {
			if err := models.ValidateReference(s); !errors.Is(err, models.ErrInvisible) {
				t.Errorf("%+q: %v", s, err)
			}
		}
	}
}

// No other letter, mark or sign is refused.
func TestOnlyDeceptiveCharactersAreRefused(t *testing.T) {
	t.Parallel()
	refused := map[rune]bool{}
	for _, r := range deceptive() {
		refused[r] = true
	}
	for r := rune(0xA0); r <= 0xFFFD; r++ {
		if r >= 0xD800 && r <= 0xDFFF {
			continue
		}
		if err := models.ValidateReference(string(r)); (err != nil) != refused[r] {
			t.Errorf("U+%04X: %v", r, err)
		}
	}
}

func TestValidateText(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]error{
		"": nil, ".": nil, "Extra shot,\r\n\tno sugar": nil, "می\u200cخواهم": nil, strings.Repeat("x", 5000): nil,
		"\x00": models.ErrReferenceControl, "\x1b[31m": models.ErrReferenceControl, "\x7f": models.ErrReferenceControl,
		"\u0085": models.ErrReferenceControl,
	} {
		if err := models.ValidateText(s); !errors.Is(err, want) || err != nil && want == nil {
			t.Errorf("%.40q: %v, want %v", s, err, want)
		}
	}
	for _, r := range deceptive() {
		if err := models.ValidateText(fmt.Sprintf("10%c00", r)); !errors.Is(err, models.ErrInvisible) {
			t.Errorf("U+%04X: %v", r, err)
		}
	}
}

func TestValidateLabel(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]error{
		".": nil, "..": nil, "Harbour Street": nil, "クラブ": nil,
		"": models.ErrReferenceLength, strings.Repeat("x", 129): models.ErrReferenceLength,
		"a\xff": models.ErrReferenceLength, "a\nb": models.ErrReferenceControl,
	} {
		if err := models.ValidateLabel(s); !errors.Is(err, want) || err != nil && want == nil {
			t.Errorf("%.40q: %v, want %v", s, err, want)
		}
	}
	for _, r := range deceptive() {
		if err := models.ValidateLabel("a" + string(r)); !errors.Is(err, models.ErrInvisible) {
			t.Errorf("U+%04X: %v", r, err)
		}
	}
}
