package main

import (
	"strings"
	"testing"
	"time"

	"partnerbilling/models"
)

func TestRetentionIsConfigured(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	cfg, err := parseConfig(nil)
	if err != nil || cfg.Retention.periods() != models.DefaultRetention {
		t.Errorf("default retention %+v, %v", cfg.Retention, err)
	}
	cfg, err = parseConfig([]string{
		"SVC_RETENTION_PAYMENTS=90", "SVC_RETENTION_WEBHOOKS=91", "SVC_RETENTION_LINKS=92", "SVC_RETENTION_ALERTS=1",
		"SVC_RETENTION_SANDBOX_RAIL=36500",
	})
	want := models.Retention{
		Payments: 90 * day, Webhooks: 91 * day, Links: 92 * day, Alerts: day, SandboxRail: models.MaxRetention,
	}
	if err != nil || cfg.Retention.periods() != want {
		t.Errorf("retention %+v, %v", cfg.Retention, err)
	}
	for _, entry := range []string{
		"SVC_RETENTION_PAYMENTS=89", "SVC_RETENTION_WEBHOOKS=89", "SVC_RETENTION_LINKS=89", "SVC_RETENTION_ALERTS=0",
		"SVC_RETENTION_SANDBOX_RAIL=29", "SVC_RETENTION_ALERTS=36501", "SVC_RETENTION_PAYMENTS=-1",
	} {
		name, _, _ := strings.Cut(entry, "=")
		if _, err := parseConfig([]string{entry}); err == nil || !strings.Contains(err.Error(), name+" must be from") {
			t.Errorf("%s: %v", entry, err)
		}
	}
}
