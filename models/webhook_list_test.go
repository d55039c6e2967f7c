package models_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
)

func (w *webhooks) list(q models.WebhookQuery) models.WebhookPage {
	w.t.Helper()
	q.OrganisationID = w.site.OrganisationID
	if q.Limit == 0 {
		q.Limit = 100
	}
	page, err := w.ListWebhookEvents(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return page
}

func eventIDs(events []models.WebhookEvent) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID.String())
	}
	return ids
}

func TestWebhookListWalk(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	if page := w.list(models.WebhookQuery{}); len(page.Items) != 0 || page.Next != nil || page.Prev != nil ||
		page.Now != webhookStart {
		t.Errorf("of nothing: %+v", page)
	}
	var want []string
	for i := range 25 {
		id, _ := w.insert()
		want = append(want, id.String())
		if i%5 == 4 {
			w.advance(time.Millisecond)
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 7, 25, 100} {
		var got []string
		q := models.WebhookQuery{Limit: limit, Direction: models.Forward}
		page := w.list(q)
		for {
			got = append(got, eventIDs(page.Items)...)
			if page.Total != 25 {
				t.Errorf("total %d", page.Total)
			}
			if page.Next == nil {
				break
			}
			q.At = *page.Next
			page = w.list(q)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d, forward (-want +got):\n%s", limit, diff)
		}
		got = nil
		for q.Direction = models.Backward; ; q.At = *page.Prev {
			if len(got) > 0 {
				page = w.list(q)
			}
			got = append(eventIDs(page.Items), got...)
			if page.Prev == nil {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d, and back (-want +got):\n%s", limit, diff)
		}
	}
}

func TestWebhookListFilters(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	first, _ := w.insert() // undelivered
	w.put(models.SiteID{}, "https://example.com/")
	w.advance(time.Second)
	second, _ := w.insert()
	event, _ := w.event(second)
	from, to := webhookStart.Add(time.Second), webhookStart.Add(time.Second-time.Millisecond)
	for name, c := range map[string]struct {
		filter models.WebhookFilter
		want   []string
	}{
		"all":     {models.WebhookFilter{}, []string{second.String(), first.String()}},
		"status":  {models.WebhookFilter{Status: models.WebhookUndelivered}, []string{first.String()}},
		"none":    {models.WebhookFilter{Status: models.WebhookFailed}, nil},
		"site":    {models.WebhookFilter{SiteID: w.site.ID, Status: models.WebhookPending}, []string{second.String()}},
		"another": {models.WebhookFilter{SiteID: models.SiteID(first)}, nil},
		"intent":  {models.WebhookFilter{PaymentIntentID: event.PaymentIntentID}, []string{second.String()}},
		"from":    {models.WebhookFilter{From: &from}, []string{second.String()}},
		"to":      {models.WebhookFilter{To: &to}, []string{first.String()}},
		"range":   {models.WebhookFilter{From: &from, To: &to}, nil},
	} {
		page := w.list(models.WebhookQuery{Filter: c.filter})
		if diff := cmp.Diff(c.want, eventIDs(page.Items)); diff != "" || int(page.Total) != len(c.want) {
			t.Errorf("%s, total %d (-want +got):\n%s", name, page.Total, diff)
		}
	}
}

func TestWebhookRedeliveryByFilter(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	for range 1203 { // more than two steps
		w.insert()
	}
	w.put(models.SiteID{}, "https://example.com/")
	kept, _ := w.insert()
	done, err := w.RedeliverWebhooks(t.Context(), w.site.OrganisationID,
		models.WebhookFilter{Status: models.WebhookUndelivered})
	if done.Count != 1203 || len(done.Tasks) != 1203 || done.ResumeFrom != 0 || err != nil {
		t.Errorf("redelivered %d with %d tasks, the rest from %d, %v",
			done.Count, len(done.Tasks), done.ResumeFrom, err)
	}
	if page := w.list(models.WebhookQuery{Filter: models.WebhookFilter{Status: models.WebhookPending},
		Limit: 1}); page.Total != 1204 {
		t.Errorf("pending: %d", page.Total)
	}
	if event, _ := w.event(kept); event.RequestedAt != event.CreatedAt || tasksLeft(t, w.Store) != 1204 {
		t.Errorf("event %+v, %d tasks", event, tasksLeft(t, w.Store))
	}
}

// A redelivery by filter stops when enough events are pending, and says where to continue.
func TestWebhookRedeliveryByFilterIsBounded(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	models.SetMaxRedelivery(w.Store, 3)
	start := webhookStart
	for range 5 {
		w.insert()
		w.advance(time.Second)
	}
	w.put(models.SiteID{}, "https://example.com/")
	w.insert() // pending
	filter := models.WebhookFilter{Type: models.EventTransactionStatus}
	redeliver := func(count int, resumeFrom models.Millis) {
		t.Helper()
		done, err := w.RedeliverWebhooks(t.Context(), w.site.OrganisationID, filter)
		if err != nil || done.Count != count || len(done.Tasks) != count || done.ResumeFrom != resumeFrom {
			t.Errorf("redelivered %+v, %v; want %d, the rest from %d", done, err, count, resumeFrom)
		}
	}
	redeliver(2, start.Add(2*time.Second))
	from := start.Add(2 * time.Second)
	filter.From = &from
	redeliver(0, from)
	for _, task := range w.due() {
		w.record(w.claim(task.ID), delivered)
	}
	redeliver(3, start.Add(5*time.Second))
}

// Redelivery by filter leaves tests out; redelivery by key includes them.
func TestWebhookRedeliveryByFilterLeavesTestsOut(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	organisation := w.site.OrganisationID
	w.put(models.SiteID{}, "https://example.com/")
	ordinary, _ := w.insert()
	test, _, err := w.CreateTestWebhook(t.Context(), organisation, models.SiteID{}, models.NewTraceID())
	if err != nil {
		t.Fatal(err)
	}
	w.advance(time.Second)
	done, err := w.RedeliverWebhooks(t.Context(), organisation, models.WebhookFilter{SiteID: w.site.ID})
	if done.Count != 1 || len(done.Tasks) != 1 || err != nil {
		t.Errorf("redelivered %+v, %v", done, err)
	}
	if event, _ := w.event(ordinary); event.RequestedAt != webhookStart.Add(time.Second) {
		t.Errorf("event %+v", event)
	}
	if event, _ := w.event(test); event.RequestedAt != webhookStart || !event.Test {
		t.Errorf("test %+v", event)
	}
	if event, task, err := w.RedeliverWebhook(t.Context(), organisation, test); err != nil || task.IsZero() ||
		event.RequestedAt != webhookStart.Add(time.Second) {
		t.Errorf("test by its key: %+v, %v", event, err)
	}
}

func TestOldWebhookEventsAreDropped(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	w.put(models.SiteID{}, "https://example.com/")
	id, task := w.insert()
	w.record(w.claim(task), delivered)
	leased, task := w.insert()
	w.claim(task) // by a worker that dies
	pending, _ := w.insert()
	must(t, w.DeleteWebhookEndpoint(t.Context(), w.site.OrganisationID, models.SiteID{}))
	_, _, err := w.RedeliverWebhook(t.Context(), w.site.OrganisationID, leased)
	must(t, err)
	w.status(leased, models.WebhookUndelivered)
	w.advance(models.DefaultRetention.Webhooks)
	if n, err := w.DropOldWebhookEvents(t.Context(), 10); n != 2 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	var slots int
	must(t, w.DB().NewRaw("SELECT count(*) FROM webhook_slots").Scan(t.Context(), &slots))
	if slots != 0 {
		t.Errorf("%d slots of events that are gone", slots)
	}
	if page := w.list(models.WebhookQuery{}); len(page.Items) != 1 || page.Items[0].ID != pending {
		t.Errorf("left: %v, of which %s is dropped", page.Items, id)
	}
}
