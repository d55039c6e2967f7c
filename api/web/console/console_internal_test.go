package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"partnerbilling/models"
)

func TestReadRows(t *testing.T) {
	t.Parallel()
	want := []batchRow{{Customer: "ada", Row: "a", Amount: "1"}, {Customer: "bob, jr", Row: " b", Amount: "2"}}
	for text, lines := range map[string][2]int{
		"ada,a,1\n\"bob, jr\",\" b\",2\n":                                                   {1, 2},
		"\uFEFFcustomerReference,rowReference,amount\r\nada,a,1\r\n\"bob, jr\",\" b\",2":    {2, 3},
		"AMOUNT;ROWREFERENCE;customerreference;note\n1;a;ada;x\n2;\" b\";bob, jr;\"y;z\"\n": {2, 3},
		"ada\ta\t1\n\nbob, jr\t\" b\"\t2\n":                                                 {1, 3},
		"ada, a, 1\n\"bob, jr\", \" b\", 2":                                                 {1, 2},
	} {
		want[0].Line, want[1].Line = lines[0], lines[1]
		got, err := readRows(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	again, err := readRows(writeRows(want))
	if diff := cmp.Diff(want, again, cmpopts.IgnoreFields(batchRow{}, "Line")); diff != "" || err != nil {
		t.Errorf("written and read again: %v\n%s", err, diff)
	}
	for _, text := range []string{"", "\n", "customerReference,rowReference,amount\n"} {
		if rows, err := readRows(text); len(rows) != 0 || err != nil {
			t.Errorf("%q: %v, %v", text, rows, err)
		}
	}
}

// A number of a form goes into JSON as it was typed if it is an integer literal; anything else goes
// as text, for the API to refuse.
func TestLiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1": "1", " 12 ": "12", "0": "0", "-5": "-5", "007": `"007"`, "1.5": `"1.5"`, "1e3": `"1e3"`, "-": `"-"`,
		"٣": `"٣"`, "<": `"<"`,
		"99999999999999999999": "99999999999999999999", "": "null", "  ": "null",
	} {
		got, err := models.EncodeJSON(literal(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestParseHours(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"1": 3_600_000, "0.5": 1_800_000, "-2": -7_200_000, "1e3": 3_600_000_000} {
		if got, ok := parseHours(text); got != want || !ok {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "soon", "NaN", "Inf", "-Inf", "1e18", "-1e18", "1e400"} {
		if got, ok := parseHours(text); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestSessionRemembersSites(t *testing.T) {
	t.Parallel()
	var s session
	var ids []models.SiteID
	for range maxSites + 3 {
		ids = append(ids, models.SiteID(uuid.New()))
		s.remember(ids[len(ids)-1])
	}
	s.remember(ids[5])
	if len(s.Sites) != maxSites || s.Sites[maxSites-1] != ids[5] || s.Sites[0] != ids[3] {
		t.Errorf("%v of %v", s.Sites, ids)
	}
}

func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	links := NewSignInLinks(nil)
	var paths []string
	for i := range maxLinks + 1 {
		paths = append(paths, strings.TrimPrefix(links.Issue(Grant{ClientSecret: fmt.Sprint(i)}), Path+"/enter/"))
	}
	if links.isOpen(paths[0]) || !links.isOpen(paths[1]) {
		t.Error("the oldest link does not give way alone")
	}
	if g, ok := links.use(paths[7]); !ok || g.ClientSecret != "7" {
		t.Errorf("%+v, %v", g, ok)
	}
	if _, ok := links.use(paths[7]); ok || links.isOpen(paths[7]) || !links.isOpen(paths[8]) {
		t.Error("a link that was used is open")
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	got := curl("https://b.example", madeCall{Method: "POST", Path: "/billing/x", Body: `{"a":"o'ne"}`})
	want := `curl -H "Authorization: Bearer $TOKEN" -H 'Svc-Api-Version: urn:svc:api:billing:version:v1' ` +
		`-H 'Content-Type: application/json' ` +
		`-d '{"a":"o'\''ne"}' 'https://b.example/billing/x'`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := curl("https://b", madeCall{Method: "DELETE", Path: "/x"}); !strings.Contains(got, " -X DELETE ") {
		t.Error(got)
	}
}

func TestDiagnoseReserialised(t *testing.T) {
	t.Parallel()
	secret := models.NewWebhookSecret()
	secrets := models.WebhookSecrets{Current: secret, Live: []models.WebhookSecret{secret}}
	body := []byte(`{"traceId":"t","data":{"a":1,"b":[1,2]}}`)
	for sent, part := range map[string]string{
		`{"data":{"a":1,"b":[1,2]},"traceId":"t"}`:                                                               "order of the fields",
		"{\n  \"traceId\": \"t\",\n  \"data\": {\n    \"a\": 1,\n    \"b\": [\n      1,\n      2\n    ]\n  }\n}": "indented by two spaces",
		`{"traceId": "t", "data": {"a": 1, "b": [1,2]}}`:                                                         "spaces were added",
	} {
		got := diagnose(secrets, body, encodeMAC(mac([]byte(secret.Reveal()), []byte(sent))))
		if !strings.Contains(got, part) {
			t.Errorf("%s: %s", sent, got)
		}
	}
}

func TestMaxBody(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		Path + "/sites/site_x/batches": maxBatchForm, Path + "/sites/site_x/batch": maxForm,
		Path + "/receiver/x": maxForm, Path + "/batches": maxForm,
	} {
		if got := MaxBody(path); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// A service time that cannot be read is not a fault of the form.
func TestCreatePaymentWithoutServiceTime(t *testing.T) {
	t.Parallel()
	c := &Console{Config: Config{ServiceTime: func(context.Context) (models.Millis, error) {
		return 0, models.ErrUnavailable
	}}}
	form := url.Values{"amount": {"100"}, "minutes": {"5"}}
	v := &visit{console: c, ctx: t.Context(), r: &http.Request{PostForm: form}}
	if err := c.createPayment(v); !errors.Is(err, models.ErrUnavailable) {
		t.Errorf("createPayment returns %v, want %v", err, models.ErrUnavailable)
	}
}
