package models_test

import (
	"strings"
	"testing"

	"partnerbilling/models"
)

func TestCheckReturnURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct{ production, sandbox bool }{
		"https://shop.example":                    {true, true},
		"https://shop.example:8443/a/b?c=%20&d#e": {true, true},
		"https://10.0.0.1/":                       {true, true}, // the customer's browser goes there, not the service
		"https://[2001:db8::1]/":                  {true, true},
		"https://xn--bcher-kva.example":           {true, true},
		"http://shop.example":                     {false, true},
		"http://127.0.0.1:9000/back":              {false, true},
		"https://" + strings.Repeat("a/", 1020):   {true, true},
		"https://" + strings.Repeat("a/", 1021):   {},
		"":                                        {},
		"shop.example":                            {},
		"//shop.example":                          {},
		"/back":                                   {},
		"https:shop.example":                      {},
		"https://":                                {},
		"https://user@shop.example":               {},
		"https://user:word@shop.example":          {},
		"https://shop.example\n":                  {},
		"https://shop.example/a b":                {},
		"https://shop.example/\"x":                {},
		"https://bücher.example":                  {},
		"https://shop.example/\u202e":             {},
		"https://shop_.example.":                  {true, true},
		"https://-shop.example":                   {},
		"https://0x7f.1":                          {},
		"https://[fe80::1%25eth0]/":               {},
		"https://2001:db8::1/":                    {},
		"javascript:alert(1)":                     {},
		"javascript://shop.example/%0aalert(1)":   {},
		"data:text/html,x":                        {},
		"ftp://shop.example":                      {},
		"HTTPS://shop.example":                    {true, true},
	} {
		if err := models.CheckReturnURL(raw, false); (err == nil) != want.production {
			t.Errorf("production: %.60q: %v", raw, err)
		}
		if err := models.CheckReturnURL(raw, true); (err == nil) != want.sandbox {
			t.Errorf("sandbox: %.60q: %v", raw, err)
		}
	}
}
