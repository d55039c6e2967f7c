package models

import "testing"

func FuzzParseSignupToken(f *testing.F) {
	f.Add("")
	f.Add("AZMsB-VVd3OAAAAAAAAAAAABAgMEBQYHCAkKCwwNDg8QERIT")
	f.Add("AZMsB-VVd3OAAAAAAAAAAAABAgMEBQYHCAkKCwwNDg8QER\r\n")
	f.Add("AZMsB+VVd3OAAAAAAAAAAAABAgMEBQYHCAkKCwwNDg8QERIT")
	f.Fuzz(func(t *testing.T, token string) {
		link, mac, err := parseSignupToken(token)
		if err != nil {
			return
		}
		if again := signupEncoding.EncodeToString(append(link[:], mac...)); again != token {
			t.Errorf("%q is also written %q", token, again)
		}
	})
}
