package ops

import (
	"context"
	"fmt"
	"strconv"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

func (v *visit) changeAlert() error {
	name, change, done := models.ActCloseAlert, v.store().CloseAlert, "The alert is closed."
	if v.form("do") == "acknowledge" {
		name, change, done = models.ActAcknowledgeAlert, v.store().AcknowledgeAlert, "The alert is yours now."
	}
	err := v.act(name, func(ctx context.Context) error { return change(ctx, v.form("kind"), v.form("subject")) })
	if err != nil {
		return err
	}
	return v.back(done)
}

func (v *visit) changeDebits() error {
	pauses := v.form("do") == "pause"
	name, done := models.ActResumeDebits, "The debits are resumed."
	if pauses {
		name, done = models.ActPauseDebits, "The debits are paused."
	}
	err := v.act(name, func(ctx context.Context) error {
		var organisation models.OrganisationID
		if err := organisation.UnmarshalText([]byte(v.form("organisation"))); err != nil {
			return err
		}
		if pauses {
			return v.store().PauseDebits(ctx, organisation)
		}
		task, err := v.store().ResumeDebits(ctx, organisation)
		if err == nil {
			v.pages.Notify([]models.TaskID{task})
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.back(done)
}

func (v *visit) changeQueue() error {
	name, change, done := models.ActResumeQueue, v.store().ResumeQueue, "The queue is resumed."
	if v.form("do") == "pause" {
		name, change, done = models.ActPauseQueue, v.store().PauseQueue, "The queue is paused."
	}
	err := v.act(name, func(ctx context.Context) error { return change(ctx, models.Queue(v.form("queue"))) })
	if err != nil {
		return err
	}
	return v.back(done)
}

func (v *visit) redeliverEvent() error {
	err := v.act(models.ActRedeliverForPartner, func(ctx context.Context) error {
		organisation, id, err := v.eventOf(v.form("organisation"), v.form("id"))
		if err != nil {
			return err
		}
		_, task, err := v.store().RedeliverWebhook(ctx, organisation, id)
		if err == nil && !task.IsZero() {
			v.pages.Notify([]models.TaskID{task})
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.back("The event is due again.")
}

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
		v.pages.Notify(done.Tasks)
		return err
	})
	if err != nil {
		return err
	}
	message := web.Plural(done.Count, "event is", "events are") + " due again."
	if done.ResumeFrom != 0 {
		from := done.ResumeFrom.Time().UTC().Format("2006-01-02T15:04")
		message += fmt.Sprintf(" More wait: repeat it later from %s.", from)
	}
	return v.back(message)
}

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

type lookUpPage struct {
	Key    string
	Answer RailAnswer
	Next   string
}

// lookUp shows the rail's answer at once: it belongs to this moment.
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

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, inputError("The position of the page is not valid: begin at the first page.")
	}
	return n, nil
}
