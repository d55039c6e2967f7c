package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"partnerbilling/api"
	"partnerbilling/models"
)

const invalidLink = "customers:invalid-pagination-link nextHref"

// nextCursor returns the cursor of the second page of two.
func (b *billing) nextCursor(t testing.TB) string {
	t.Helper()
	b.invite(t, "one")
	b.invite(t, "two")
	_, cursor, _ := strings.Cut(hrefs(b.Get(b.customers("?limit=1"))).next, "?cursor=")
	return cursor
}

func TestPaginationLinksAreBoundToTheirList(t *testing.T) {
	b := newBilling(t, nil)
	cursor := b.nextCursor(t)
	path := b.customers("?cursor=" + cursor)
	b.Get(path).Expect(200)
	b.Get(path).Expect(200) // a link may be followed repeatedly

	b.Get("/billing/sites/"+b.sister.String()+"/customers?cursor="+cursor).Refused(400, invalidLink)
	b.other.Get("/billing/sites/"+b.otherSite.String()+"/customers?cursor="+cursor).Refused(400, invalidLink)
	b.Get("/billing/sites/"+b.site.String()+"/batches?cursor="+cursor).
		Refused(400, "batches:invalid-pagination-link nextHref")

	another := newBilling(t, nil) // the same service with other keys
	another.Get(another.customers("?cursor="+cursor)).Refused(400, invalidLink)
}

func TestPaginationLinksStandAlone(t *testing.T) {
	b := newBilling(t, nil)
	cursor := b.nextCursor(t)
	for _, query := range []string{
		"cursor=", "cursor", "cursor=%zz", "cursor=%ff", "cursor=x", "cursor=" + cursor + "&limit=1",
		"limit=1&cursor=" + cursor,
		"cursor=" + cursor + "&cursor=" + cursor, "cursor=" + cursor + "&other=1", "cursor=" + cursor + "&a=%zz",
		"cursor=" + cursor + "=", "cursor=+" + cursor, "cursor=" + cursor + "%0a", "cursor=%20" + cursor,
		"cursor=" + strings.Repeat("A", 4000),
	} {
		b.Get(b.customers("?"+query)).Refused(400, invalidLink)
	}
	b.Get(b.customers("?Cursor="+cursor)).Refused(400, "customers:invalid-parameter Cursor")
	b.Get(b.customers("?%63ursor=" + cursor)).Expect(200)
}

func TestPaginationLinksCannotBeChanged(t *testing.T) {
	b := newBilling(t, nil)
	cursor := b.nextCursor(t)
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		changed := append([]byte{}, raw...)
		changed[i] ^= 0x40
		b.Get(b.customers("?cursor="+base64.RawURLEncoding.EncodeToString(changed))).Refused(400, invalidLink)
	}
	for _, n := range []int{0, 1, 16, 43, 44, 60, len(raw) - 1} {
		b.Get(b.customers("?cursor="+base64.RawURLEncoding.EncodeToString(raw[:n]))).Refused(400, invalidLink)
	}
	if strings.Contains(string(raw), "invited") || strings.Contains(string(raw), "lnk_") {
		t.Errorf("a cursor can be read: %q", raw)
	}
}

func TestPaginationLinksExpire(t *testing.T) {
	b := newBilling(t, nil)
	path := b.customers("?cursor=" + b.nextCursor(t))
	b.advance(t, 24*time.Hour-time.Millisecond)
	fresh := hrefs(b.Get(path)).prev // each page's links are valid for 24 hours of their own
	b.advance(t, time.Millisecond)
	b.Get(path).Refused(400, invalidLink)
	b.Get(fresh).Expect(200)
}

func TestPaginationLinksSurviveKeyRotation(t *testing.T) {
	var keys *models.Keys
	b := newBilling(t, func(cfg *api.Config) { keys = cfg.Keys })
	path := b.customers("?cursor=" + b.nextCursor(t))
	if _, err := b.store.DB().ExecContext(t.Context(),
		"UPDATE service_keys SET retired_at = (extract(epoch FROM now()) * 1000)::bigint + 60000 WHERE purpose = 'sealedText'"); err != nil {
		t.Fatal(err)
	}
	if err := keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Get(path).Expect(200)
	if _, err := b.store.DB().ExecContext(t.Context(),
		"UPDATE service_keys SET retired_at = 1 WHERE purpose = 'sealedText'"); err != nil {
		t.Fatal(err)
	}
	if err := keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Get(path).Refused(400, invalidLink)
}

// The links contain the filters and the limit of the first page.
func TestPaginationLinksHoldTheFilters(t *testing.T) {
	b := newBilling(t, nil)
	for i := range 5 {
		b.invite(t, fmt.Sprint("r", i))
		b.advance(t, time.Millisecond)
	}
	b.Post(b.customer("r1", "/revocation"), nil).Expect(200)
	path := b.customers(fmt.Sprintf("?state=invited&invitedTo=%d&limit=1", noon+3))
	references, last := b.walk(t, path, func(p customerPage) string { return p.NextHref })
	if got := strings.Join(references, " "); got != "r3 r2 r0" || last.TotalItems != 3 {
		t.Errorf("%s of %d", got, last.TotalItems)
	}
}
