package api

import (
	"bytes"
	"testing"

	"partnerbilling/models"
)

// A cursor opens only in its canonical encoding, with the sealed content, and only for its scope.
func FuzzCursor(f *testing.F) {
	key := models.Key{ID: models.KeyID{1}, Purpose: models.KeyPaginationLink,
		Secret: bytes.Repeat([]byte{7}, models.KeySecretSize)}
	scope, plain := []byte("list of somebody"), []byte(`{"l":50}`)
	valid, err := sealCursor(key, plain, scope)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add(valid[:len(valid)-1])
	f.Add(valid + "=")
	f.Add(valid[:20] + "\n" + valid[20:])
	f.Add("")
	if c, err := parseCursor(valid); err != nil {
		f.Fatal(err)
	} else if got, err := c.decrypt(key, scope); err != nil || !bytes.Equal(got, plain) {
		f.Fatalf("it opens as %q, %v", got, err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			return
		}
		got, err := c.decrypt(key, scope)
		again := cursorEncoding.EncodeToString(append(c.head, c.sealed...))
		if err == nil && (!bytes.Equal(got, plain) || again != text) {
			t.Errorf("%q opens as %q, and is also written %q", text, got, again)
		}
		if got, err := c.decrypt(key, []byte("list of somebody else")); err == nil {
			t.Errorf("%q opens for somebody else as %q", text, got)
		}
	})
}
