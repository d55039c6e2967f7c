package requestlog

import (
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"partnerbilling/models"
)

func organisation() models.OrganisationID { return models.OrganisationID(uuid.New()) }

// The oldest records are dropped, by number and by bytes, and so is the organisation that was idle
// for longest.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	s := NewRecent[int](2, 3, 3*recordOverhead+100)
	a, b, c := organisation(), organisation(), organisation()
	for i := range 5 {
		s.Add(a, i, 10)
	}
	if diff := cmp.Diff([]int{4, 3, 2}, s.Latest(a)); diff != "" {
		t.Errorf("by number:\n%s", diff)
	}
	s.Add(a, 5, 80)
	if diff := cmp.Diff([]int{5, 4, 3}, s.Latest(a)); diff != "" {
		t.Errorf("exactly full:\n%s", diff)
	}
	s.Add(a, 6, 81)
	if diff := cmp.Diff([]int{6, 5}, s.Latest(a)); diff != "" {
		t.Errorf("by bytes:\n%s", diff)
	}
	s.Add(a, 7, 1<<20)
	if got := s.Latest(a); len(got) != 0 {
		t.Errorf("one that is larger than all together is kept: %v", got)
	}
	s.Add(a, 8, 0)
	s.Add(b, 1, 0)
	s.Add(a, 9, 0)
	s.Add(c, 1, 0)
	if len(s.Latest(a)) != 2 || len(s.Latest(b)) != 0 || len(s.Latest(c)) != 1 {
		t.Errorf("organisations: %v %v %v", s.Latest(a), s.Latest(b), s.Latest(c))
	}
	s.Clear(a)
	if len(s.Latest(a)) != 0 {
		t.Error("cleared records are there")
	}
}

func TestRecentIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := NewRecent[int](4, 10, 1<<20)
	organisations := []models.OrganisationID{organisation(), organisation()}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 500 {
				s.Add(organisations[(i+n)%2], n, n)
				if got := len(s.Latest(organisations[i%2])); got > 10 {
					t.Errorf("%d records", got)
				}
			}
		})
	}
	all.Wait()
}

func TestRedact(t *testing.T) {
	t.Parallel()
	const jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln"
	for text, want := range map[string]string{
		`{"data":{"secret":"whsec_AAAA+/=="},"traceId":"t"}`:  `{"data":{"secret":"[redacted]"},"traceId":"t"}`,
		`{"secret" : "a\"b","amount":1}`:                      `{"secret" : "[redacted]","amount":1}`,
		`{"clientSecret":"a`:                                  `{"clientSecret":"[redacted]`,
		`{"note":"whsec_AAAA and ` + jwt + `"}`:               `{"note":"whsec_[redacted] and [redacted]"}`,
		`https://billing.example/signup/AaI-_1`:               `https://billing.example/signup/[redacted]`,
		`/customer-app/signups/AaI-_1/completion?a=1`:         `/customer-app/signups/[redacted]/completion?a=1`,
		`/customer-app/payment-intents/ABCD/transactions`:     `/customer-app/payment-intents/[redacted]/transactions`,
		`/x?a=whsec_AA%2BAA&b=1`:                              `/x?a=whsec_[redacted]&b=1`,
		`/billing/x?limit=1&cursor=abc&y=1`:                   `/billing/x?limit=1&cursor=[redacted]&y=1`,
		`{"nextHref":"https://x/y?cursor=abc"}`:               `{"nextHref":"https://x/y?cursor=[redacted]"}`,
		`/billing/x?client_secret=abc&limit=1`:                `/billing/x?client_secret=[redacted]&limit=1`,
		`{"url":"https://x/hook?accessToken=abc","a":1}`:      `{"url":"https://x/hook?accessToken=[redacted]","a":1}`,
		`/billing/x?tokens=2`:                                 `/billing/x?tokens=2`,
		`http://x/console/receiver/AaIk-_/500`:                `http://x/console/receiver/[redacted]/500`,
		`{"qrCode":"HTTPS://X/P/ABCDEFGHIJKLMN27","a":1}`:     `{"qrCode":"HTTPS://X/P/[redacted]","a":1}`,
		`{"paymentUrl":"https://x/P/ABCDEFGHIJKLMN27"}`:       `{"paymentUrl":"https://x/P/[redacted]"}`,
		`/P/ABCDEFGHIJKLMN2`:                                  `/P/ABCDEFGHIJKLMN2`,
		`{"secretary":"ada","amount":1}`:                      `{"secretary":"ada","amount":1}`,
		`{"qrCode":"data:image/png;base64,iVBO/+Rw==","a":1}`: `{"qrCode":"data:image/png;base64,[redacted]","a":1}`,
		`data:image/gif;base64,iVeyJB/x.y`:                    `data:image/gif;base64,iVeyJB/x.y`,
	} {
		if got := redact(text); got != want {
			t.Errorf("%s\nreads %s\nwant  %s", text, got, want)
		}
	}
}

// KeepBody redacts a secret across the end of the kept part, and keeps no half characters.
func TestKeepBodyCuts(t *testing.T) {
	t.Parallel()
	for shift := range 64 {
		body := strings.Repeat("x", maxBody-shift) + `"secret":"hush-hush-hush"` + strings.Repeat("é", maxBody)
		kept := KeepBody([]byte(body))
		if strings.Contains(kept.Text, "hush") || len(kept.Text) > maxBody || !kept.Cut ||
			kept.Size != len(body) || !utf8.ValidString(kept.Text) {
			t.Fatalf("shift %d: %d bytes, %q", shift, len(kept.Text), kept.Text[len(kept.Text)-40:])
		}
	}
	if kept := KeepBody([]byte("ab\xff")); kept.Text != "ab\uFFFD" || kept.Cut {
		t.Errorf("%+v", kept)
	}
	for body, cut := range map[string]bool{
		`{"token":"a"}` + strings.Repeat("x", maxBody-13):                                 true,  // lengthened
		`{"token":"` + strings.Repeat("a", 100) + `"}` + strings.Repeat("x", maxBody-100): false, // shortened
	} {
		if kept := KeepBody([]byte(body)); kept.Cut != cut {
			t.Errorf("%d bytes, of which %d are kept: cut %t", len(body), len(kept.Text), kept.Cut)
		}
	}
}

// A steady rate is kept, a flood only in part, and one organisation's flood leaves another's alone.
func TestLogAdmits(t *testing.T) {
	t.Parallel()
	l, ada, bob := New(), organisation(), organisation()
	now := time.Unix(0, 0)
	for i := range 1000 {
		if now = now.Add(time.Second / loggedPerSecond); !l.Admits(ada, now) {
			t.Fatalf("request %d at the steady rate is left out", i)
		}
	}
	kept := 0
	for range 10_000 {
		if l.Admits(ada, now) {
			kept++
		}
	}
	if kept != loggedBurst-1 {
		t.Errorf("%d of a flood are kept", kept)
	}
	if !l.Admits(bob, now) {
		t.Error("another organisation's request is left out")
	}
}
