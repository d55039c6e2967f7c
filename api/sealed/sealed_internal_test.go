package sealed

import (
	"bytes"
	"testing"

	"partnerbilling/models"
)

// A text opens only in its canonical encoding, with the sealed content, and only for its label and
// scope.
func FuzzBox(f *testing.F) {
	key := models.Key{ID: models.KeyID{1}, Purpose: Purpose, Secret: bytes.Repeat([]byte{7}, models.KeySecretSize)}
	box, other := Box{Label: "cursor", MaxSize: 200}, Box{Label: "session", MaxSize: 200}
	scope, plain := []byte("list of one organisation"), []byte(`{"l":50}`)
	valid, err := box.seal(key, plain, scope)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add(valid[:len(valid)-1])
	f.Add(valid + "=")
	f.Add(valid[:20] + "\n" + valid[20:])
	f.Add("")
	if raw, err := box.parse(valid); err != nil {
		f.Fatal(err)
	} else if got, err := box.open(key, raw, scope); err != nil || !bytes.Equal(got, plain) {
		f.Fatalf("it opens as %q, %v", got, err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := box.parse(text)
		if err != nil {
			return
		}
		got, err := box.open(key, raw, scope)
		if again := Encoding.EncodeToString(raw); err == nil && (!bytes.Equal(got, plain) || again != text) {
			t.Errorf("%q opens as %q, and is also written %q", text, got, again)
		}
		if got, err := box.open(key, raw, []byte("list of another organisation")); err == nil {
			t.Errorf("%q opens in another scope as %q", text, got)
		}
		if got, err := other.open(key, raw, scope); err == nil {
			t.Errorf("%q opens under another label as %q", text, got)
		}
	})
}

func TestBoxRefusesLongTexts(t *testing.T) {
	key := models.Key{ID: models.KeyID{1}, Purpose: Purpose, Secret: bytes.Repeat([]byte{7}, models.KeySecretSize)}
	box := Box{Label: "cursor", MaxSize: 100}
	text, err := box.seal(key, bytes.Repeat([]byte{1}, 100), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.parse(text); err == nil {
		t.Errorf("%d characters are accepted, at most %d are allowed", len(text), box.MaxSize)
	}
}
