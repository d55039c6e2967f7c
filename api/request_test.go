package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestMediaTypes(t *testing.T) {
	g := newTestServer(t, nil)
	body := `{"batchReference":"b","amount":1}`
	for contentType, status := range map[string]int{
		"application/json":                                202,
		"application/json; charset=utf-8":                 202,
		"application/json;charset=UTF-8":                  202,
		`Application/JSON ; Charset="Utf-8"`:              202,
		"application/json; charset=utf8":                  202,
		"application/json; charset=csUTF8":                202,
		"application/json; profile=x":                     202,
		"application/json; charset=iso-8859-1":            415,
		"application/json; charset=":                      415,
		"application/json; charset=utf-16":                415,
		"application/json, application/json":              415,
		"application/problem+json":                        415,
		"application/jsonx":                               415,
		"text/json":                                       415,
		"application/x-www-form-urlencoded":               415,
		"multipart/form-data; boundary=x":                 415,
		"*/*":                                             415,
		"json":                                            415,
		"application/json; charset=utf-8; charset=latin1": 415,
	} {
		t.Run(contentType, func(t *testing.T) {
			g.For(t).With("Content-Type", contentType).Post(site("/batches"), body).Expect(status)
		})
	}
	for encoding, status := range map[string]int{"identity": 202, "Identity": 202, "gzip": 415, "br": 415,
		"identity, gzip": 415, "utf-8": 415} {
		t.Run("encoding "+encoding, func(t *testing.T) {
			g.For(t).With("Content-Encoding", encoding).Post(site("/batches"), body).Expect(status)
		})
	}
	multipart := "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n"
	g.With("Content-Type", "multipart/form-data; boundary=x").Post(site("/batches"), multipart).
		Refused(415, "requests:unsupported-media-type Content-Type")
	head := "POST " + site("/batches") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"
	g.Raw(head+"Content-Length: 2\r\n\r\n{}", "POST", site("/batches"), 1)[0].Refused(415,
		"requests:unsupported-media-type Content-Type")
	g.Raw(head+"\r\n", "POST", site("/batches"), 1)[0].Refused(400, "requests:malformed-json")
	chunked := head + "Transfer-Encoding: chunked\r\n"
	ok := "Content-Type: application/json\r\n"
	for text, want := range map[string]string{
		chunked + "\r\n0\r\n\r\n":                                     "400 requests:malformed-json",
		chunked + "Content-Type: text/plain\r\n\r\n0\r\n\r\n":         "400 requests:malformed-json",
		chunked + "Content-Encoding: gzip\r\n" + ok + "\r\n0\r\n\r\n": "400 requests:malformed-json",
		chunked +
			"\r\n2\r\n{}\r\n0\r\n\r\n": "415 requests:unsupported-media-type Content-Type",
		chunked + "Content-Encoding: gzip\r\n" + ok +
			"\r\n1\r\n{\r\n0\r\n\r\n": "415 requests:unsupported-media-type Content-Encoding",
		chunked + ok + "\r\n0\r\n\r\n":                       "400 requests:malformed-json",
		chunked + ok + "\r\n" + hexChunk(body) + "0\r\n\r\n": "202 ",
	} {
		a := g.Raw(text, "POST", site("/batches"), 1)[0]
		got := fmt.Sprint(a.Status, " ")
		if a.Status >= 400 {
			got += strings.TrimSpace(a.Faults()[0].Code + " " + a.Faults()[0].Target)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	g.Raw(head+"Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n", "POST", site("/batches"), 1)[0].Refused(400,
		"requests:malformed-json")
}

// hexChunk encodes a body as one HTTP chunk.
func hexChunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

func TestOptionalAndFormBodies(t *testing.T) {
	g := newTestServer(t, nil)
	c := g.WithToken("app")
	const path = "/customer-app/links/l/revocation"
	var data struct {
		Link string
		Body bool
	}
	if c.Post(path, nil).Expect(200).Data(&data); data.Body {
		t.Error("no body became one")
	}
	if c.Post(path, `{}`).Expect(200).Data(&data); !data.Body {
		t.Error("a body was lost")
	}
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer app\r\nTransfer-Encoding: chunked\r\n"
	for _, more := range []string{"", "Content-Type: text/plain\r\n", "Content-Type: application/json\r\n"} {
		if c.Raw(head+more+"\r\n0\r\n\r\n", "POST", path, 1)[0].Expect(200).Data(&data); data.Body {
			t.Errorf("an empty chunked body became one: %s", more)
		}
	}
	c.Raw(head+"\r\n"+hexChunk("{}")+"0\r\n\r\n", "POST", path, 1)[0].Refused(415,
		"requests:unsupported-media-type Content-Type")
	c.Post(path, `[]`).Refused(400, "requests:malformed-json")
	c.Post(path, " ").Refused(400, "requests:malformed-json")
	c.With("Content-Type", "text/plain").Post(path, `{}`).Refused(415, "requests:unsupported-media-type Content-Type")
	f := g.With("Content-Type", "application/x-www-form-urlencoded")
	var form struct{ Form string }
	if f.Post("/form", "a=1&b=%20").Expect(200).Data(&form); form.Form != "a=1&b=%20" {
		t.Errorf("form %q", form.Form)
	}
	g.Post("/form", "a=1").Expect(415)
}

func TestBodyLimits(t *testing.T) {
	g := newTestServer(t, nil)
	batch := func(size int) string {
		body := `{"batchReference":"b","amount":1}`
		return body + strings.Repeat(" ", size-len(body))
	}
	for name, c := range map[string]struct {
		path         string
		size, status int
	}{
		"batch at the limit":        {site("/batches"), 1 << 20, 202},
		"batch over it":             {site("/batches"), 1<<20 + 1, 413},
		"far over it":               {site("/batches"), 8 << 20, 413},
		"other at the limit":        {checkout("/payment-intent"), 64 << 10, 201},
		"other over it":             {checkout("/payment-intent"), 64<<10 + 1, 413},
		"other over, under a batch": {checkout("/payment-intent"), 1 << 20, 413},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", chunked: ", chunked), func(t *testing.T) {
				var body any = batch(c.size)
				if chunked {
					body = io.MultiReader(strings.NewReader(batch(c.size))) // of unknown length
				}
				a := g.For(t).Post(c.path, body).Expect(c.status)
				if a.Close != (c.status == http.StatusRequestEntityTooLarge) {
					t.Errorf("status %d, connection closed: %v", a.Status, a.Close)
				}
			})
		}
	}
}

func TestJSONBounds(t *testing.T) {
	g := newTestServer(t, nil)
	values := func(n int) string { // besides the object, the two known fields and the list
		return `{"lineItems":[],"amount":1,"x":[` + strings.TrimSuffix(strings.Repeat("1,", n-4), ",") + "]}"
	}
	note := func(size int) string { return `{"amount":1,"x":"` + strings.Repeat("a", size-6) + `"}` }
	forBatch := strings.NewReplacer(`{"lineItems":[],`, `{"batchReference":"b",`, `{"amount":1,"x":"`,
		`{"batchReference":"b","amount":1,"x":"`)
	batch, other := site("/batches"), checkout("/payment-intent")
	for name, c := range map[string]struct {
		path, body, fault string
		status            int
	}{
		"batch, few values":             {batch, values(5000), "", 202},
		"batch, most values, too long":  {batch, values(32_768), "batches:invalid-field x", 400},
		"batch, too many values":        {batch, values(32_769), "requests:malformed-json", 400},
		"batch, far too many values":    {batch, values(524_000), "requests:malformed-json", 400},
		"batch, most of unknown fields": {batch, note(16 << 10), "", 202},
		"batch, too much of them":       {batch, note(16<<10 + 1), "batches:invalid-field x", 400},
		"other, few values":             {other, values(1000), "", 201},
		"other, most values, too long": {other, values(2048),
			"x is an unknown field; unknown fields may hold at most 2048 bytes in total", 400},
		"other, too many values":        {other, values(2049), "The body has more than 2048 values.", 400},
		"other, most of unknown fields": {other, note(2 << 10), "", 201},
		"other, too much of them": {other, note(2<<10 + 1),
			"x is an unknown field; unknown fields may hold at most 2048 bytes in total", 400},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == batch {
				c.body = forBatch.Replace(c.body)
			}
			a := g.For(t).Post(c.path, c.body).Expect(c.status)
			switch {
			case c.fault == "":
			case c.path == batch:
				a.Refused(400, c.fault)
			default:
				if f := a.Faults(); len(f) != 1 || f[0].Message != c.fault || f[0].Code != "" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	g.Post(batch, note(20_000)[:20_000]).Refused(400, "requests:malformed-json")
	g.Post(batch, strings.Replace(forBatch.Replace(note(20_000)), `"amount":1`, `"amount":0`, 1)).
		Refused(400, "batches:invalid-field x", "batches:invalid-field amount")
}
