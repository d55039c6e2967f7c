package main

import (
	"fmt"
	"time"

	"partnerbilling/models"
)

// retention is the part of the configuration that says how long data is kept. See
// [models.Retention] for what each period covers.
type retention struct {
	Payments    days `env:"SVC_RETENTION_PAYMENTS" envDefault:"400"`
	Webhooks    days `env:"SVC_RETENTION_WEBHOOKS" envDefault:"400"`
	Links       days `env:"SVC_RETENTION_LINKS" envDefault:"400"`
	Alerts      days `env:"SVC_RETENTION_ALERTS" envDefault:"90"`
	SandboxRail days `env:"SVC_RETENTION_SANDBOX_RAIL" envDefault:"90"`
}

// days is a period in whole days.
type days int

// period returns the period as a duration.
func (d days) period() time.Duration { return time.Duration(d) * 24 * time.Hour }

// periods returns the periods in the form of the Store.
func (r retention) periods() models.Retention {
	return models.Retention{
		Payments: r.Payments.period(), Webhooks: r.Webhooks.period(), Links: r.Links.period(),
		Alerts:      r.Alerts.period(),
		SandboxRail: r.SandboxRail.period(),
	}
}

// check calls refuse for each period below models.MinRetention or above models.MaxRetention.
func (r retention) check(refuse func(variable, complaint string)) {
	least := models.MinRetention
	for _, p := range []struct {
		variable string
		days     days
		least    time.Duration
	}{
		{"SVC_RETENTION_PAYMENTS", r.Payments, least.Payments}, {"SVC_RETENTION_WEBHOOKS", r.Webhooks, least.Webhooks},
		{"SVC_RETENTION_LINKS", r.Links, least.Links}, {"SVC_RETENTION_ALERTS", r.Alerts, least.Alerts},
		{"SVC_RETENTION_SANDBOX_RAIL", r.SandboxRail, least.SandboxRail},
	} {
		first, last := int(p.least.Hours()/24), int(models.MaxRetention.Hours()/24)
		if int(p.days) < first || int(p.days) > last {
			refuse(p.variable, fmt.Sprintf("must be from %d to %d days", first, last))
		}
	}
}
