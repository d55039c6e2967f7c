package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/apitest"
)

func TestCustomerAnswers(t *testing.T) {
	b := newBilling(t, nil)
	b.invite(t, "expired")
	b.advance(t, week)
	for _, reference := range []string{"invited", "linked", "revoked"} {
		b.invite(t, reference)
		b.advance(t, time.Millisecond)
	}
	b.Post("/sandbox/sites/"+b.site.String()+"/customers/linked/signup", nil).Expect(200)
	golden(t, "customer-revocation", b.Post(b.customer("revoked", "/revocation"), nil).Expect(200))
	golden(t, "customer-revocation", b.Post(b.customer("revoked", "/revocation"), nil).Expect(200)) // the same again
	for _, reference := range []string{"invited", "linked", "expired", "revoked"} {
		golden(t, "customer-"+reference, b.Get(b.customer(reference, "")).Expect(200))
	}
	golden(t, "customer-not-found", b.Get(b.customer("nobody", "")).Expect(404))
	golden(t, "customer-revocation-expired", b.Post(b.customer("expired", "/revocation"), nil).Expect(409))
	golden(t, "customer-revocation-not-found", b.Post(b.customer("nobody", "/revocation"), nil).Expect(404))

	golden(t, "customers", b.Get(b.customers("")).Expect(200))
	golden(t, "customers-first-page", b.Get(b.customers("?limit=2")).Expect(200))
	golden(t, "customers-middle-page", b.Get(hrefs(b.Get(b.customers("?limit=1"))).next).Expect(200))
	golden(t, "customers-last-page", b.Get(hrefs(b.Get(b.customers("?limit=2"))).next).Expect(200))
	golden(t, "customers-none", b.Get(b.customers("?invitedFrom=2&invitedTo=1")).Expect(200))
	golden(t, "customers-invalid-parameter", b.Get(b.customers("?limit=101&state=Invited&invitedFrom=&invitedTo=x")).
		Expect(400))
	golden(t, "customers-invalid-pagination-link", b.Get(b.customers("?cursor=x")).Expect(400))
	golden(t, "customers-no-version", b.With("Svc-Api-Version", "v1").Get(b.customers("")).Expect(400))
}

// references are valid references that are easy to encode wrongly.
var awkward = []string{
	"a/b", "100%", "50%25", "what?", "#1", "a+b", "two words", " ", "…", "✨🧾", "e\u0301", "\u00e9", `"quoted"`, "a\\b",
	"a&b=c;d", "invitations", "a:b", ":", "*", "{siteId}", "~", "...", "a//b", strings.Repeat("é", 128),
}

func TestReferencesRoundTripThroughPaths(t *testing.T) {
	b := newBilling(t, nil)
	for _, reference := range awkward {
		made := b.Post(b.customers("/invitations"), map[string]any{"customerReference": reference}).Expect(201)
		for _, path := range []string{made.Header.Get("Location"), b.customer(reference, ""),
			b.customers("/" + encodeAll(reference))} {
			var c customerSummary
			b.Get(path).Expect(200).Data(&c)
			if c.CustomerReference != reference {
				t.Errorf("%q came back as %q", reference, c.CustomerReference)
			}
		}
		b.Post(b.customer(reference, "/invitation-link"), nil).Expect(200)
		b.Post(fmt.Sprintf("/sandbox/sites/%s/customers/%s/signup", b.site, url.PathEscape(reference)), nil).Expect(200)
		b.Post(b.customer(reference, "/revocation"), nil).Expect(200)
	}
	var page customerPage
	b.Get(b.customers("?limit=100")).Expect(200).Data(&page)
	var listed []string
	for _, c := range page.Items {
		listed = append(listed, c.CustomerReference)
	}
	want := slices.Clone(awkward)
	slices.Sort(want)
	slices.Sort(listed)
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Error(diff)
	}
}

// encodeAll percent-encodes every byte.
func encodeAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

func TestInvalidReferences(t *testing.T) {
	b := newBilling(t, nil)
	for _, segment := range []string{"%2e", "..%2f..", "%00", "%0a", "%zz", "%ff", strings.Repeat("a", 129)} {
		answer := b.Get(b.customers("/" + segment))
		if segment != "..%2f.." {
			answer.Refused(404, "customers:customer-not-found customerReference")
		}
		b.Post(b.customers("/"+segment+"/invitation-link"), nil).
			Refused(409, "invitations:no-live-invitation customerReference")
	}
}

type customerPage struct {
	Items              []customerSummary
	TotalItems         int
	NextHref, PrevHref string
}

// links returns the pagination links of an answer, as paths on the test's server.
type links struct{ next, prev string }

func hrefs(a *apitest.Answer) links {
	var page customerPage
	a.Expect(200).Data(&page)
	return links{strings.TrimPrefix(page.NextHref, publicURL), strings.TrimPrefix(page.PrevHref, publicURL)}
}

func TestCustomerListWalk(t *testing.T) {
	b := newBilling(t, nil)
	var want []string
	for i := range 23 {
		if i%4 == 0 {
			b.advance(t, time.Millisecond)
		}
		want = append(want, fmt.Sprint(i))
		b.invite(t, want[i])
	}
	slices.Reverse(want)
	forward, last := b.walk(t, b.customers("?limit=5"), func(p customerPage) string { return p.NextHref })
	if diff := cmp.Diff(want, forward); diff != "" {
		t.Errorf("forward: %s", diff)
	}
	backward, first := b.walk(t, strings.TrimPrefix(last.PrevHref, publicURL), func(p customerPage) string {
		return p.PrevHref
	})
	if n := len(last.Items); len(backward) != 23-n || first.PrevHref != "" || first.NextHref == "" ||
		last.NextHref != "" {
		t.Errorf("backward: %d items, first page %+v", len(backward), first)
	}
	slices.Sort(backward)
	if len(slices.Compact(backward)) != 23-len(last.Items) {
		t.Errorf("backward: %v", backward)
	}
}

// walk follows links from page to page. It returns every reference and the last page.
func (b *billing) walk(
	t testing.TB, path string, link func(customerPage) string,
) (references []string, page customerPage) {
	t.Helper()
	for {
		page = customerPage{}
		b.Get(path).Expect(200).Data(&page)
		for _, c := range page.Items {
			references = append(references, c.CustomerReference)
		}
		href := link(page)
		if href == "" {
			return references, page
		}
		if !strings.HasPrefix(href, publicURL+b.customers("?cursor=")) || strings.Contains(href, "&") {
			t.Fatalf("link %q", href)
		}
		path = strings.TrimPrefix(href, publicURL)
	}
}

func TestCustomerListFilters(t *testing.T) {
	b := newBilling(t, nil)
	for i, reference := range []string{"a", "b", "c", "d"} {
		if b.invite(t, reference); i > 1 {
			b.Post(b.customer(reference, "/revocation"), nil).Expect(200)
		}
		b.advance(t, time.Millisecond)
	}
	for query, want := range map[string]string{
		"?invitedFrom=-1": "dcba", "?invitedTo=-1": "",
		"?invitedFrom=-9223372036854775808&invitedTo=9223372036854775807": "dcba",
		"?invitedFrom=9223372036854775807":                                "", "?invitedTo=-9223372036854775808": "",
		"?invitedFrom=0":              "dcba",
		"?invitedTo=9007199254740992": "dcba",
		"":                            "dcba", "?state=invited": "ba", "?state=revoked": "dc", "?state=linked": "",
		"?state=expired": "", fmt.Sprintf("?invitedFrom=%d", noon+1): "dcb",
		fmt.Sprintf("?invitedTo=%d", noon+1):                           "ba",
		fmt.Sprintf("?invitedFrom=%d&invitedTo=%[1]d", noon+2):         "c",
		fmt.Sprintf("?invitedFrom=%d&invitedTo=%d", noon+2, noon+1):    "",
		fmt.Sprintf("?state=invited&invitedFrom=%d&limit=100", noon+1): "b",
	} {
		var page customerPage
		b.Get(b.customers(query)).Expect(200).Data(&page)
		got := ""
		for _, c := range page.Items {
			got += c.CustomerReference
		}
		if got != want || page.TotalItems != len(want) || page.NextHref != "" || page.PrevHref != "" {
			t.Errorf("%s: %q of %d, want %q", query, got, page.TotalItems, want)
		}
	}
	b.advance(t, week)
	var page customerPage
	if b.Get(b.customers("?state=expired")).Expect(200).Data(&page); page.TotalItems != 2 {
		t.Errorf("%d expired, want 2", page.TotalItems)
	}
}

func TestCustomerListRefusesParameters(t *testing.T) {
	b := newBilling(t, nil)
	for query, fault := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=": "limit", "limit=1.0": "limit", "limit=01": "limit",
		"limit=%2B1":      "limit",
		"limit=1&limit=1": "limit", "state=": "state", "state=LINKED": "state", "state=linked&state=linked": "state",
		"invitedFrom=-0": "invitedFrom", "invitedTo=x": "invitedTo", "invitedTo=9223372036854775808": "invitedTo",
		"invitedFrom=-9223372036854775809": "invitedFrom", "invitedFrom=1e3": "invitedFrom",
		"invitedFrom=%2B1": "invitedFrom", "invitedFrom=00": "invitedFrom",
		"Limit=1": "Limit", "offset=1": "offset",
	} {
		b.Get(b.customers("?"+query)).Refused(400, "customers:invalid-parameter "+fault)
	}
}

// While eight writers invite and sign up over HTTP, a walk finds each older customer exactly once.
func TestCustomerListWalkWhileWritersWrite(t *testing.T) {
	b := newBilling(t, nil)
	steady := map[string]bool{}
	for i := range 30 {
		steady[fmt.Sprint("steady ", i)] = true
		b.invite(t, fmt.Sprint("steady ", i))
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() { b.write(t, w) })
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		forward, last := b.walk(t, b.customers("?state=invited&limit=7"), func(p customerPage) string {
			return p.NextHref
		})
		checkSteady(t, "forward", forward, steady)
		backward, _ := b.walk(t, strings.TrimPrefix(last.PrevHref, publicURL), func(p customerPage) string {
			return p.PrevHref
		})
		for _, c := range last.Items {
			backward = append(backward, c.CustomerReference)
		}
		checkSteady(t, "backward", backward, steady)
	}
}

func (b *billing) write(t testing.TB, writer int) {
	for i := range 12 {
		reference := fmt.Sprintf("writer-%d-%d", writer, i)
		_, err := b.Try(t.Context(), "POST", b.customers("/invitations"),
			map[string]any{"customerReference": reference})
		if err == nil && i%2 == 0 {
			_, err = b.Try(t.Context(), "POST", "/sandbox/sites/"+b.site.String()+"/customers/"+reference+
				"/signup", nil)
		}
		if err != nil {
			t.Errorf("writer %d: %v", writer, err)
			return
		}
		if i%3 == 0 {
			b.advance(t, time.Millisecond)
		}
	}
}

func checkSteady(t testing.TB, walk string, references []string, steady map[string]bool) {
	t.Helper()
	seen := map[string]int{}
	for _, r := range references {
		seen[r]++
	}
	for r, n := range seen {
		if n != 1 {
			t.Errorf("%s: %q was seen %d times", walk, r, n)
		}
	}
	for r := range steady {
		if seen[r] != 1 {
			t.Errorf("%s: %q was seen %d times", walk, r, seen[r])
		}
	}
}
