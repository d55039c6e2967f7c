package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

var (
	keyA = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xa1}, seal.MasterKeySize))
	keyB = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xb2}, seal.MasterKeySize))
)

func TestParseKeyring(t *testing.T) {
	t.Parallel()
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = fmt.Sprintf("k%d:%s", i, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i)}, 32)))
	}
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"one", "k1:" + keyA, true},
		{"two", "k2:" + keyB + ",k1:" + keyA, true},
		{"longest id", "abcdefgh01234567:" + keyA, true},
		{"eight", strings.Join(nine[:8], ","), true},
		{"nine", strings.Join(nine, ","), false},
		{"empty", "", false},
		{"bare key", keyA, false},
		{"no id", ":" + keyA, false},
		{"long id", "abcdefgh012345678:" + keyA, false},
		{"upper-case id", "K1:" + keyA, false},
		{"space", " k1:" + keyA, false},
		{"newline at the end", "k1:" + keyA + "\n", false},
		{"newline inside", "k1:" + keyA[:43] + "\n", false},
		{"trailing comma", "k1:" + keyA + ",", false},
		{"same id", "k1:" + keyA + ",k1:" + keyB, false},
		{"same key", "k1:" + keyA + ",k2:" + keyA, false},
		{"31 bytes", "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 31)), false},
		{"33 bytes", "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 33)), false},
		{"no padding", "k1:" + strings.TrimRight(keyA, "="), false},
		{"URL alphabet", "k1:" + strings.Repeat("_", 43) + "=", false},
		{"trailing bits", "k1:" + strings.Repeat("A", 42) + "B=", false},
		{"two colons", "k1::" + keyA, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := seal.ParseKeyring(tt.text)
			if (err == nil) != tt.ok {
				t.Fatalf("error %v, want ok %v", err, tt.ok)
			}
			if err != nil && (!errors.Is(err, seal.ErrMasterKey) || strings.Contains(err.Error(), keyA[:8])) {
				t.Errorf("error %q must be ErrMasterKey and quote no key", err)
			}
		})
	}
}

func TestGenerateMasterKey(t *testing.T) {
	t.Parallel()
	first, second := seal.GenerateMasterKey(), seal.GenerateMasterKey()
	modelstest.Keyring(t, second+","+first)
}

func TestKeyringRoundTrip(t *testing.T) {
	t.Parallel()
	ring, other := modelstest.Keyring(t, "k2:"+keyB+",k1:"+keyA), modelstest.Keyring(t, "k2:"+keyA)
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "plain")
		aad := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "aad")
		sealed := ring.Seal(plain, aad)
		got, err := ring.Open(sealed, aad)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("Open = %x, %v", got, err)
		}
		refused := func(what string, ring *seal.Keyring, sealed, aad []byte) {
			if _, err := ring.Open(sealed, aad); !errors.Is(err, seal.ErrOpen) {
				t.Fatalf("%s: error %v, want ErrOpen", what, err)
			}
		}
		changed := bytes.Clone(sealed)
		changed[rapid.IntRange(0, len(sealed)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		refused("changed", ring, changed, aad)
		refused("cut", ring, sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "length")], aad)
		refused("longer", ring, append(bytes.Clone(sealed), 0), aad)
		refused("another row", ring, sealed, append(bytes.Clone(aad), 'x'))
		refused("another key of that id", other, sealed, aad)
	})
}

func TestKeyringRotation(t *testing.T) {
	t.Parallel()
	before, during, after := modelstest.Keyring(t, "k1:"+keyA), modelstest.Keyring(t, "k2:"+keyB+",k1:"+keyA),
		modelstest.Keyring(t, "k2:"+keyB)
	sealed := before.Seal([]byte("secret"), []byte("row"))
	if _, err := after.Open(sealed, []byte("row")); !errors.Is(err, seal.ErrOpen) {
		t.Fatalf("opened without the key: %v", err)
	}
	resealed, changed, err := during.Reseal(sealed, []byte("row"))
	if err != nil || !changed {
		t.Fatalf("Reseal: changed %v, %v", changed, err)
	}
	if plain, err := after.Open(resealed, []byte("row")); err != nil || string(plain) != "secret" {
		t.Fatalf("Open = %q, %v", plain, err)
	}
	if again, changed, err := during.Reseal(resealed, []byte("row")); err != nil || changed ||
		!bytes.Equal(again, resealed) {
		t.Fatalf("second Reseal: changed %v, %v", changed, err)
	}
}

func TestKeyringHidesKeys(t *testing.T) {
	t.Parallel()
	ring := modelstest.Keyring(t, "k1:"+keyA)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, ring); got != "seal.Keyring(1 keys)" {
			t.Errorf("%s prints %q", format, got)
		}
	}
}

func FuzzParseKeyring(f *testing.F) {
	for _, seed := range []string{"", "k1:" + keyA, "k2:" + keyB + ",k1:" + keyA, "k1:" + keyA + ",", ":",
		",,", "k1:\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ring, err := seal.ParseKeyring(text)
		if err != nil {
			return
		}
		if strings.ContainsAny(text, " \r\n\t") {
			t.Errorf("accepted white space in %q", text)
		}
		if plain, err := ring.Open(ring.Seal([]byte("x"), nil), nil); err != nil || string(plain) != "x" {
			t.Errorf("ring of %q does not open what it seals: %v", text, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	ring, err := seal.ParseKeyring("k1:" + keyA)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ring.Seal([]byte("x"), nil))
	f.Add([]byte{})
	f.Add([]byte{255, 'k'})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if _, err := ring.Open(sealed, []byte("row")); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("opened made-up bytes: %v", err)
		}
	})
}
