package auth

import (
	"testing"

	"github.com/lestrrat-go/jwx/v3/jwk"
)

// An outside issuer's key set yields only public keys that fit the algorithm.
func FuzzOutsideKeySet(f *testing.F) {
	for _, seed := range []string{
		`{"keys":[]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",` +
			`"d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`,
		`{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`,
		`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}`,
		`{"keys":[{"kty":"AKP","alg":"ML-DSA-44","kid":"a","pub":"AA"},1,{"kty":"OKP","crv":"Ed25519","kid":"a",` +
			`"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"kty":"EC","crv":"P-256","kid":"a","x":"AA","y":"AA"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		set, err := parseOutsideKeys(body)
		if err != nil {
			return
		}
		for i := range set.Len() {
			key, _ := set.Key(i)
			id, _ := key.KeyID()
			for _, algorithm := range asymmetric {
				found, ok := keyByID(set, id, algorithm)
				if !ok {
					continue
				}
				if private, err := jwk.IsPrivateKey(found); err != nil || private {
					t.Errorf("%s: a private key verifies %s (%v)", body, algorithm, err)
				}
				if id == "" || !fits(found, algorithm) {
					t.Errorf("%s: key %q verifies %s", body, id, algorithm)
				}
			}
		}
	})
}
