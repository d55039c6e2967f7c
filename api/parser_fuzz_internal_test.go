package api

import (
	"maps"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"partnerbilling/models/tracing"
)

func seed(f *testing.F, texts ...string) {
	for _, text := range texts {
		f.Add(text)
	}
}

// requestWith returns a request with one header.
func requestWith(name, value string) *Request {
	r := &Request{fast: &fasthttp.RequestCtx{}}
	r.fast.Request.Header.Set(name, value)
	return r
}

// The query parser agrees with net/url, which has no order and does not require UTF-8.
func FuzzParseQuery(f *testing.F) {
	seed(f, "", "a=1&a=2&b", "limit=%31&&x=%zz", "a+b=%2B+c", "a=\xff&%ff=1", "a;b=1", "=", "&=&", "a=%00", "a==b")
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, ";") { // net/url refuses it; here it is a character of a name or value
			return
		}
		got, order, bad := parseQuery(raw)
		want, err := url.ParseQuery(raw)
		if err != nil {
			if len(bad) == 0 {
				t.Fatalf("%q: %v, and no parameter is bad", raw, err)
			}
			return
		}
		for name, values := range want {
			values = slices.DeleteFunc(values, func(v string) bool { return !utf8.ValidString(v) })
			if want[name] = values; len(values) == 0 || !utf8.ValidString(name) {
				delete(want, name)
			}
		}
		if diff := cmp.Diff(map[string][]string(want), got); diff != "" {
			t.Errorf("%q: %s", raw, diff)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(order))); diff != "" {
			t.Errorf("%q: order %s", raw, diff)
		}
	})
}

// A path segment is decoded exactly once, as net/url decodes it in a whole URL.
func FuzzDecodePath(f *testing.F) {
	seed(f, "a", "2026%2F11%20%237+%C3%A9", "%2e", "%252F", "%ff", "%", "%0", "%E2%80%8B", "a+b", "%00")
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.ContainsAny(raw, "/?#") {
			return
		}
		got, err := decodePath(raw)
		u, urlErr := url.Parse("http://x/" + raw)
		switch {
		case err == nil && !utf8.ValidString(got):
			t.Errorf("%q: %q", raw, got)
		case err == nil && urlErr == nil && u.Path != "/"+got:
			t.Errorf("%q: %q, net/url says %q", raw, got, u.Path)
		case err != nil && urlErr == nil && utf8.ValidString(u.Path):
			t.Errorf("%q: %v, net/url says %q", raw, err, u.Path)
		}
	})
}

// Any value survives as a quoted preference, among others, and no header holds an answer too long.
func FuzzPrefer(f *testing.F) {
	seed(f, "20", "wait=20", `a="b, wait=1"; wait=2, WAIT="7"`, `"`, `\`,
		`respond-async, wait=99999999999999999999`, "\x80")
	f.Fuzz(func(t *testing.T, text string) {
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
		header := `a=` + quoted + `;wait=3 , b;c=` + quoted + `, Wait = ` + quoted + `; d=` + quoted
		if got, ok := preference([]string{header}, "wait"); !ok || got != text {
			t.Errorf("%s: %q, %t", header, got, ok)
		}
		if d := requestWith("Prefer", text).PreferWait(); d < 0 || d > MaxWait || d%time.Second != 0 {
			t.Errorf("%q waits %s", text, d)
		}
		parts := slices.Collect(splitQuoted(text, ','))
		if strings.Join(parts, ",") != text {
			t.Errorf("%q splits into %q", text, parts)
		}
	})
}

// The weight of a single media type is the one that package mime reads.
func FuzzAccept(f *testing.F) {
	seed(f, "text/csv", "text/csv;q=0.5", `text/csv; a="b;q=0"; q=0.1`, "*/*", "text/csv;q=NaN", "text/csv;q=-1",
		"TEXT/CSV ; Q=1e9", "text/csv;q")
	f.Fuzz(func(t *testing.T, header string) {
		got := requestWith("Accept", header).acceptWeight("text/csv")
		if !(got >= 0 && got <= 1) {
			t.Fatalf("%q weighs %g", header, got)
		}
		kind, parameters, err := mime.ParseMediaType(header)
		if err != nil || strings.Contains(header, ",") {
			return
		}
		want := 0.0
		if kind == "text/csv" {
			want = 1
			if q, err := strconv.ParseFloat(parameters["q"], 64); err == nil && q >= 0 &&
				!strings.Contains(header, `"`) {
				want = min(q, 1)
			} else if strings.Contains(header, `"`) {
				return // acceptWeight does not unquote a weight, which is never quoted
			}
		}
		if got != want {
			t.Errorf("%q weighs %g, want %g", header, got, want)
		}
	})
}

// Only one media type, without a charset other than UTF-8, is JSON.
func FuzzMediaType(f *testing.F) {
	seed(f, "application/json", `application/json; charset="utf-8"`, "application/json; charset=utf-16",
		"application/json, text/html", "application/json;charset*=utf-8''utf-8", "application/jsonx", "a", ";")
	plain := regexp.MustCompile(`(?i)^\s*application/json\s*(;|$)`)
	f.Fuzz(func(t *testing.T, header string) {
		if !isMediaType(header, "application/json") {
			return
		}
		if !plain.MatchString(header) {
			t.Errorf("%q passes for JSON", header)
		}
		_, parameters, err := mime.ParseMediaType(header)
		if charset, ok := parameters["charset"]; err != nil || ok &&
			!strings.Contains(strings.ToLower(charset), "utf") {
			t.Errorf("%q passes for UTF-8", header)
		}
	})
}

// Exactly the traceparents of the W3C's grammar are continued, and never become the traceId.
func FuzzTraceparent(f *testing.F) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seed(f, valid, "ff"+valid[2:], valid+"-x", "01"+valid[2:]+"-x", strings.ToUpper(valid), "", valid[:54],
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", valid[:53]+"ff")
	grammar := regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)
	f.Fuzz(func(t *testing.T, header string) {
		r := requestWith("traceparent", header)
		header = r.Header("traceparent") // without the white space around it
		remote := tracing.RemoteSpan(traceparent(&r.fast.Request.Header))
		match := grammar.FindStringSubmatch(header)
		wellFormed := match != nil && match[1] != "ff" && strings.Trim(match[2], "0") != "" &&
			strings.Trim(match[3], "0") != ""
		if remote.IsValid() && !wellFormed {
			t.Fatalf("%q is continued", header)
		}
		if remote.IsValid() && (remote.TraceID().String() != match[2] || remote.SpanID().String() != match[3]) {
			t.Errorf("%q is read as %v", header, remote)
		}
	})
}

// A file name is one parameter of the header, and no path.
func FuzzAttachment(f *testing.F) {
	seed(f, "a", `a"b\c/d`, "../x", "é", "a\r\nX: y", "%41", "a;b=c", "\u202egnp", "~'()*")
	f.Fuzz(func(t *testing.T, reference string) {
		if !utf8.ValidString(reference) {
			return
		}
		header := attachment("batch-" + reference + ".csv")
		kind, parameters, err := mime.ParseMediaType(header)
		name := parameters["filename"]
		if err != nil || kind != "attachment" || len(parameters) != 1 {
			t.Fatalf("%s: %s %v, %v", header, kind, parameters, err)
		}
		if strings.ContainsAny(name, "/\\\r\n\x00") || !strings.HasPrefix(name, "batch-") ||
			!strings.HasSuffix(name, ".csv") {
			t.Errorf("%q is saved as %q", reference, name)
		}
		if strings.IndexFunc(header, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
			t.Errorf("%q is not ASCII", header)
		}
	})
}
