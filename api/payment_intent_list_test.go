package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

type intentPage struct {
	Items              []intentData
	NextHref, PrevHref string
}

func (b *billing) intentPage(t testing.TB, path string) intentPage {
	t.Helper()
	return dataOf[intentPage](b.Get(path).Expect(200))
}

// order creates a payment intent for an order.
func (b *billing) order(t testing.TB, orderID string) (id, code string) {
	t.Helper()
	made := dataOf[createdIntent](b.Post(b.intents(""),
		fmt.Sprintf(`{"amount":5,"orderId":%q,"qrCodeFormat":"text"}`, orderID)).Expect(201))
	return made.PaymentIntentID, strings.TrimPrefix(made.QRCode, "HTTPS://BILLING.EXAMPLE/P/")
}

func ordersOf(page intentPage) []string {
	var list []string
	for _, item := range page.Items {
		list = append(list, item.OrderID)
	}
	return list
}

func TestPaymentIntentListAnswers(t *testing.T) {
	t.Parallel()
	c := newPaying(t)
	golden(t, "intents-none", c.Get(c.intents("")).Expect(200))
	_, code := c.intent(t)
	c.finish(t, c.pay(t, code), models.TransactionResult{Status: models.TransactionSettled})
	c.advance(t, time.Millisecond)
	id, _ := c.order(t, "two")
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	c.advance(t, time.Millisecond)
	c.Post(c.intents(""), `{"amount":1,"returnUrl":"http://shop.example"}`).Expect(201)

	golden(t, "intents", c.Get(c.intents("")).Expect(200))
	golden(t, "intents-first-page", c.Get(c.intents("?limit=1")).Expect(200))
	middle := c.Get(link(c.intentPage(t, c.intents("?limit=1")).NextHref)).Expect(200)
	golden(t, "intents-middle-page", middle)
	golden(t, "intents-last-page", c.Get(link(dataOf[intentPage](middle).NextHref)).Expect(200))
	golden(t, "intents-invalid-parameter",
		c.Get(c.intents("?limit=0&state=Final&transactionStatus=settled&createdFrom=-&createdTo=&orderId=..")).
			Expect(400))
	golden(t, "intents-invalid-pagination-link", c.Get(c.intents("?cursor=x")).Expect(400))
	c.advance(t, 15*time.Minute)
	golden(t, "intents-expired", c.Get(c.intents("?transactionStatus=Expired")).Expect(200))
}

func TestPaymentIntentListFilters(t *testing.T) {
	t.Parallel()
	c := newPaying(t)
	for i, status := range []models.TransactionStatus{models.TransactionSettled, models.TransactionDeclined,
		models.TransactionFailed} {
		_, code := c.order(t, fmt.Sprint(i))
		c.finish(t, c.pay(t, code), models.TransactionResult{Status: status})
		c.advance(t, time.Millisecond)
	}
	id, _ := c.order(t, "3")
	c.Post(c.intents("/"+id+"/cancellation"), nil).Expect(200)
	c.order(t, "4 &é") // expires later in the test
	_, code := c.order(t, "5")
	c.pay(t, code)
	c.advance(t, 15*time.Minute)
	c.order(t, "6")
	const last = "6"
	for query, want := range map[string][]string{
		"":                                         {last, "5", "4 &é", "3", "2", "1", "0"},
		"?state=created":                           {last},
		"?state=pending":                           {"5"},
		"?state=final":                             {"4 &é", "3", "2", "1", "0"},
		"?transactionStatus=Expired":               {"4 &é"},
		"?transactionStatus=Cancelled":             {"3"},
		"?transactionStatus=Failed":                {"2"},
		"?transactionStatus=Declined":              {"1"},
		"?transactionStatus=Settled&state=final":   {"0"},
		"?transactionStatus=Settled&state=created": nil,
		"?orderId=4+%26%C3%A9":                     {"4 &é"},
		"?orderId=4%20%26%C3%A9&state=final":       {"4 &é"},
		"?orderId=4%20%26%C3%A9&state=created":     nil,
		"?orderId=none":                            nil,
		"?createdFrom=%d1":                         {last, "5", "4 &é", "3", "2", "1"},
		"?createdTo=%d1":                           {"1", "0"},
		"?createdFrom=%d1&createdTo=%d2":           {"2", "1"},
		"?createdFrom=%d2&createdTo=%d1":           nil,
		"?createdFrom=-9223372036854775808&createdTo=9223372036854775807": {last, "5", "4 &é", "3", "2", "1", "0"},
		"?createdTo=-1": nil, "?createdFrom=9223372036854775807": nil,
	} {
		page := c.intentPage(t, c.intents(strings.ReplaceAll(query, "%d", fmt.Sprint(int64(noon)/10))))
		got := ordersOf(page)
		slices.Sort(got) // two have the same timestamp
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" || page.NextHref != "" || page.PrevHref != "" {
			t.Errorf("%s: %+v%s", query, page, diff)
		}
	}
	for query, message := range map[string]string{
		"?limit=101":                 "limit must be an integer from 1 to 100",
		"?limit=1&limit=1":           "limit must be given once",
		"?state=Created":             "state must be one of created, pending, final",
		"?transactionStatus=settled": "transactionStatus must be one of Settled, Declined, Failed, Cancelled, Expired",
		"?orderId=":                  "orderId must have 1 to 128 characters",
		"?createdFrom=1.0":           "createdFrom must be an integer from -9223372036854775808 to 9223372036854775807",
		"?paymentIntentId=x":         "paymentIntentId is not a parameter of this operation",
	} {
		complains(t, c.Get(c.intents(query)), 400, message)
	}
}

// The clock stands still, so that all timestamps but two are equal.
func TestPaymentIntentListWalk(t *testing.T) {
	t.Parallel()
	c := newPaying(t)
	ids := map[string]string{}
	want := []string{}
	for i := range 13 {
		order := fmt.Sprint(i)
		ids[order], _ = c.order(t, order)
		want = append(want, order)
		if i == 0 || i == 11 {
			c.advance(t, time.Millisecond)
		}
	}
	slices.Reverse(want)
	page := c.intentPage(t, c.intents("?limit=5&createdFrom=0"))
	forward := ordersOf(page)
	c.order(t, "newer") // newer than the first page, so the walk must not see it
	c.Post(c.intents("/"+ids["4"]+"/cancellation"), nil).Expect(200)
	for page.NextHref != "" {
		page = c.intentPage(t, link(page.NextHref))
		forward = append(forward, ordersOf(page)...)
	}
	if diff := cmp.Diff(want, forward); diff != "" {
		t.Errorf("forward: %s", diff)
	}
	backward := ordersOf(page)
	for page.PrevHref != "" {
		page = c.intentPage(t, link(page.PrevHref))
		backward = append(ordersOf(page), backward...)
	}
	if diff := cmp.Diff(append([]string{"newer"}, want...), backward); diff != "" {
		t.Errorf("backward: %s", diff)
	}
}

func TestPaymentIntentPaginationLinks(t *testing.T) {
	t.Parallel()
	c := newPaying(t)
	longest := strings.Repeat("&", 128) // six bytes each in a cursor
	for range 2 {
		c.order(t, longest)
		c.Post(c.batches(""), bodyOf(fmt.Sprint("batch ", len(c.tasks)), "ada")).Expect(202)
	}
	next := link(c.intentPage(t, c.intents("?limit=1&state=created&orderId="+strings.Repeat("%26", 128))).NextHref)
	_, cursor, _ := strings.Cut(next, "?")
	const fault = "nextHref is not valid or no longer valid. Restart pagination from the first page."
	complains(t, c.Get(next+"&limit=1"), 400, fault)
	complains(t, c.Get(next+"A"), 400, fault)
	complains(t, c.Get("/checkout/"+c.sister.String()+"/payment-intent?"+cursor), 400, fault)
	complains(t, c.other.Get("/checkout/"+c.otherSite.String()+"/payment-intent?"+cursor), 400, fault)
	c.Get(c.batches("?"+cursor)).Refused(400, "batches:invalid-pagination-link nextHref")
	_, cursor, _ = strings.Cut(c.batchPage(t, c.batches("?limit=1")).NextHref, "?")
	complains(t, c.Get(c.intents("?"+cursor)), 400, fault)
	c.advance(t, 24*time.Hour-time.Millisecond)
	c.Get(next).Expect(200)
	c.advance(t, time.Millisecond)
	complains(t, c.Get(next), 400, fault)
}
