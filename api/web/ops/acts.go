package ops

import (
	"context"
	"fmt"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// choice is one of the acts that a form offers. The form's field "do" selects it.
type choice[F any] struct {
	name models.ActName
	do   F
	done string // the message after the act
}

// choose returns the choice that the form selects.
func choose[F any](v *visit, choices map[string]choice[F]) (choice[F], error) {
	c, ok := choices[v.form("do")]
	if !ok {
		return c, inputError("The form names no act: load the page again.")
	}
	return c, nil
}

// changeAlert acknowledges or closes an alert.
func (v *visit) changeAlert() error {
	c, err := choose(v, map[string]choice[func(ctx context.Context, kind, subject string) error]{
		"acknowledge": {models.ActAcknowledgeAlert, v.store().AcknowledgeAlert, "The alert is yours now."},
		"close":       {models.ActCloseAlert, v.store().CloseAlert, "The alert is closed."},
	})
	if err != nil {
		return err
	}
	err = v.act(c.name, func(ctx context.Context) error { return c.do(ctx, v.form("kind"), v.form("subject")) })
	if err != nil {
		return err
	}
	return v.back(c.done)
}

// changeDebits pauses or resumes the debits of an organisation's batches.
func (v *visit) changeDebits() error {
	c, err := choose(v, map[string]choice[func(context.Context, models.OrganisationID) error]{
		"pause":  {models.ActPauseDebits, v.store().PauseDebits, "The debits are paused."},
		"resume": {models.ActResumeDebits, v.resumeDebits, "The debits are resumed."},
	})
	if err != nil {
		return err
	}
	err = v.act(c.name, func(ctx context.Context) error {
		var organisation models.OrganisationID
		if err := organisation.UnmarshalText([]byte(v.form("organisation"))); err != nil {
			return err
		}
		return c.do(ctx, organisation)
	})
	if err != nil {
		return err
	}
	return v.back(c.done)
}

// resumeDebits resumes the debits.
func (v *visit) resumeDebits(ctx context.Context, organisation models.OrganisationID) error {
	_, err := v.store().ResumeDebits(ctx, organisation)
	return err
}

// changeQueue pauses or resumes the dispatch of a queue.
func (v *visit) changeQueue() error {
	c, err := choose(v, map[string]choice[func(context.Context, models.Queue) error]{
		"pause":  {models.ActPauseQueue, v.store().PauseQueue, "The queue is paused."},
		"resume": {models.ActResumeQueue, v.store().ResumeQueue, "The queue is resumed."},
	})
	if err != nil {
		return err
	}
	err = v.act(c.name, func(ctx context.Context) error { return c.do(ctx, models.Queue(v.form("queue"))) })
	if err != nil {
		return err
	}
	return v.back(c.done)
}

// redeliverEvent schedules one webhook event for another delivery.
func (v *visit) redeliverEvent() error {
	err := v.act(models.ActRedeliverForPartner, func(ctx context.Context) error {
		organisation, id, err := v.eventOf(v.form("organisation"), v.form("id"))
		if err != nil {
			return err
		}
		_, _, err = v.store().RedeliverWebhook(ctx, organisation, id)
		return err
	})
	if err != nil {
		return err
	}
	return v.back("The event will be delivered again.")
}

// redeliverEvents schedules the events that match the form's filter for another delivery. If one
// redelivery cannot take all of them, the message says from which time to continue.
func (v *visit) redeliverEvents() error {
	var done models.Redelivery
	err := v.act(models.ActRedeliverForPartner, func(ctx context.Context) error {
		organisation, filter, err := v.eventsFilter()
		if err != nil {
			return err
		}
		if filter.Status == "" || filter.Status == models.WebhookPending {
			return inputError("Choose one of the statuses failed, undelivered and delivered.")
		}
		done, err = v.store().RedeliverWebhooks(ctx, organisation, filter)
		return err
	})
	if err != nil {
		return err
	}
	return v.back(redelivered(done))
}

// redelivered returns the message about a redelivery. Its time has milliseconds, so that as the
// form's "from" it selects no event that has been redelivered already, except one of the same
// millisecond.
func redelivered(done models.Redelivery) string {
	message := web.Plural(done.Count, "event", "events") + " will be delivered again."
	if done.ResumeFrom != 0 {
		from := done.ResumeFrom.Time().Format(web.RFC3339Milli)
		message += fmt.Sprintf(" More events match: redeliver again later, from %s.", from)
	}
	return message
}

// unparkEndpoint enables an endpoint and resets its breaker, so that its parked events go out. It
// is the endpoint of a Site, or the default one if the form names no Site.
func (v *visit) unparkEndpoint() error {
	err := v.act(models.ActUnparkEndpoint, func(ctx context.Context) error {
		var organisation models.OrganisationID
		var site models.SiteID
		if err := organisation.UnmarshalText([]byte(v.form("organisation"))); err != nil {
			return err
		}
		if text := v.form("site"); text != "" {
			if err := site.UnmarshalText([]byte(text)); err != nil {
				return err
			}
		}
		return v.store().UnparkWebhookEndpoint(ctx, organisation, site)
	})
	if err != nil {
		return err
	}
	return v.back("The endpoint is unparked.")
}

// lookUpPage is the page with the rail's answer about a key.
type lookUpPage struct {
	Key    string // a rail key
	Answer RailAnswer
	Next   string // the page to go back to
}

// lookUp asks the rail about a key. It shows the answer at once instead of redirecting, because the
// answer holds only at this moment.
func (v *visit) lookUp() error {
	p := lookUpPage{Key: v.form("key"), Next: v.form("next")}
	err := v.act(models.ActLookUpDebit, func(ctx context.Context) (err error) {
		if v.pages.LookUp == nil {
			return errRail
		}
		p.Answer, err = v.pages.LookUp(ctx, p.Key)
		return err
	})
	if err != nil {
		return err
	}
	return v.show("railanswer", &base{Title: "The rail's answer", Tab: "search"}, &p)
}
