package ops

import (
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// webhooksPage is the page of the webhooks in trouble, of all organisations.
type webhooksPage struct {
	Letters   []models.DeadLetters      // events that were not delivered
	Endpoints []models.TroubledEndpoint // that fail, are disabled or hold events back
}

// webhooks shows the endpoints in trouble, and counts the events that were not delivered.
func (v *visit) webhooks() (err error) {
	var p webhooksPage
	if p.Letters, err = v.store().DeadLetters(v.ctx, maxShown); err != nil {
		return err
	}
	if p.Endpoints, err = v.store().TroubledEndpoints(v.ctx, maxShown); err != nil {
		return err
	}
	return v.show("webhooks", &base{Title: "Webhooks", Tab: "webhooks"}, &p)
}

// eventsPage is a page of an organisation's webhook events.
type eventsPage struct {
	Organisation models.Organisation
	Status       models.WebhookStatus
	Statuses     []models.WebhookStatus
	From, To     string // as typed
	Page         models.WebhookPage
	Next         string // the next page's address; "" on the last
}

// eventsFilter reads the fields organisation, status, from and to of the address or the form.
func (v *visit) eventsFilter() (organisation models.OrganisationID, filter models.WebhookFilter, err error) {
	if err = organisation.UnmarshalText([]byte(v.r.FormValue("organisation"))); err != nil {
		return organisation, filter, err
	}
	filter.Status = models.WebhookStatus(v.r.FormValue("status"))
	if filter.Status != "" && !filter.Status.Valid() {
		return organisation, filter, inputError("There is no such status.")
	}
	from, to, err := v.period()
	if from != 0 {
		filter.From = &from
	}
	if to != 0 {
		filter.To = &to
	}
	return organisation, filter, err
}

// events shows the events that match the parameters, newest first.
func (v *visit) events() error {
	id, filter, err := v.eventsFilter()
	if err != nil {
		return err
	}
	p := eventsPage{
		Status: filter.Status, Statuses: models.WebhookStatuses, From: v.query("from"), To: v.query("to"),
	}
	if p.Organisation, err = v.store().Organisation(v.ctx, id); err != nil {
		return err
	}
	query := models.WebhookQuery{OrganisationID: id, Filter: filter, Limit: eventsPageSize}
	if query.At.At, err = v.after(&query.At.Key); err != nil {
		return err
	}
	if p.Page, err = v.store().ListWebhookEvents(v.ctx, query); err != nil {
		return err
	}
	if next := p.Page.Next; next != nil {
		p.Next = web.WithQuery(Path+"/events", "organisation", id, "status", p.Status, "from", p.From, "to", p.To,
			"afterAt", int64(next.At), "afterId", next.Key)
	}
	return v.show("events", &base{Title: "Events of " + p.Organisation.Name, Tab: "webhooks"}, &p)
}

// eventPage is the page of one webhook event, with its attempts.
type eventPage struct {
	models.EventStory
	Organisation models.Organisation
}

// event shows the event with the parameters organisation and id.
func (v *visit) event() error {
	organisation, id, err := v.eventOf(v.query("organisation"), v.query("id"))
	if err != nil {
		return err
	}
	var p eventPage
	if p.WebhookEvent, p.Attempts, err = v.store().WebhookEvent(v.ctx, organisation, id); err != nil {
		return err
	}
	if p.Organisation, err = v.store().Organisation(v.ctx, organisation); err != nil {
		return err
	}
	return v.show("event", &base{Title: "Event " + id.String(), Tab: "webhooks"}, &p)
}

// eventOf parses the id of an organisation and that of an event.
func (v *visit) eventOf(ofOrganisation, ofEvent string) (
	organisation models.OrganisationID, id models.WebhookEventID, err error,
) {
	if err = organisation.UnmarshalText([]byte(ofOrganisation)); err == nil {
		err = id.UnmarshalText([]byte(ofEvent))
	}
	return organisation, id, err
}
