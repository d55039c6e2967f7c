package rail

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The expected signature was computed with other tools:
//
//	printf 'rail-v1\nk1\n1700000000000\nPOST\n/debits\n%s' \
//		"$(printf '{}' | sha256sum | cut -c1-64)" |
//		openssl dgst -sha256 -hmac secret
func TestSignatureExample(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/debits", nil)
	SigningKey{ID: "k1", Secret: []byte("secret")}.Sign(r, []byte("{}"), time.UnixMilli(1700000000000))
	const want = "keyId=k1,timestamp=1700000000000,v1=b528868cdc46eb9fd2351e37081d0fdbb7832c179c54650e7b0626bdf42282bd"
	if got := r.Header.Get("Rail-Signature"); got != want {
		t.Errorf("signed as %s, want %s", got, want)
	}
}

func TestSignatureWindow(t *testing.T) {
	key := SigningKey{ID: "k1", Secret: []byte("secret")}
	signed := time.UnixMilli(1700000000000)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debits/a%2Fb", nil)
	key.Sign(r, nil, signed)
	for after, want := range map[time.Duration]error{
		0:                                 nil,
		5 * time.Minute:                   nil,
		-5 * time.Minute:                  nil,
		5*time.Minute + time.Millisecond:  ErrInvalidSignature,
		-5*time.Minute - time.Millisecond: ErrInvalidSignature,
		290 * 365 * 24 * time.Hour:        ErrInvalidSignature,
		-50 * 365 * 24 * time.Hour:        ErrInvalidSignature,
	} {
		err := verifySignature(r, nil, map[string][]byte{"k1": key.Secret}, signed.Add(after))
		if !errors.Is(err, want) {
			t.Errorf("%v after signing: %v, want %v", after, err, want)
		}
	}
}

func TestParseSignatureRefuses(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	valid := "keyId=k-_1,timestamp=1,v1=" + digits
	if _, err := parseSignature(valid); err != nil {
		t.Fatalf("%s: %v", valid, err)
	}
	for _, header := range []string{
		"", "keyId=", "k-_1,timestamp=1,v1=" + digits, " " + valid, valid + " ",
		valid + ",v1=" + digits, strings.ToUpper(valid),
		"keyId=,timestamp=1,v1=" + digits,
		"keyId=" + strings.Repeat("k", 65) + ",timestamp=1,v1=" + digits,
		"keyId=ké,timestamp=1,v1=" + digits,
		"keyId=k,timestamp=01,v1=" + digits,
		"keyId=k,timestamp=+1,v1=" + digits,
		"keyId=k,timestamp=-1,v1=" + digits,
		"keyId=k,timestamp=,v1=" + digits,
		"keyId=k,timestamp=99999999999999999999,v1=" + digits,
		"keyId=k,timestamp=9223372036854775807,v1=" + digits,
		"keyId=k,timestamp=1,v1=" + digits[2:],
		"keyId=k,timestamp=1,v1=" + digits + "00",
		"keyId=k,timestamp=1,v1=" + strings.ToUpper(digits),
		"keyId=k,timestamp=1,v1=" + strings.Repeat("zz", 32),
		"timestamp=1,keyId=k,v1=" + digits,
	} {
		if s, err := parseSignature(header); err == nil {
			t.Errorf("%q is accepted as %+v", header, s)
		}
	}
}

func FuzzParseSignature(f *testing.F) {
	f.Add("keyId=k1,timestamp=1700000000000,v1=" + strings.Repeat("0a", 32))
	f.Add("keyId=,timestamp=-1,v1=")
	f.Add(",timestamp=,v1=,v1=")
	f.Fuzz(func(t *testing.T, header string) {
		s, err := parseSignature(header)
		if err != nil {
			return
		}
		if s.String() != header {
			t.Errorf("%q is written as %q", header, s.String())
		}
		if !validKeyID(s.keyID) || s.timestamp < 0 {
			t.Errorf("%q: key id %q, timestamp %d", header, s.keyID, s.timestamp)
		}
	})
}
