package console

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"partnerbilling/models"
)

// clockPage is the page of the sandbox's clock, which can be advanced.
type clockPage struct {
	Now   models.Millis // service time
	Ahead time.Duration // of the database's own time
	Steps []clockStep
	Hours string // of the form, as typed
}

// clockStep is a step by which a button advances the clock.
type clockStep struct {
	Label, Detail string
	Ms            int64
}

var clockSteps = []clockStep{
	{"1 minute", "webhook retries begin", time.Minute.Milliseconds()},
	{"15 minutes", "payment intents expire", (15 * time.Minute).Milliseconds()},
	{"1 hour", "", time.Hour.Milliseconds()},
	{"24 hours", "every batch is settled", (24 * time.Hour).Milliseconds()},
	{"7 days", "invitations expire", (7 * 24 * time.Hour).Milliseconds()},
	{"90 days", "batch references are free again", (90 * 24 * time.Hour).Milliseconds()},
}

func (c *Console) showClock(v *visit) error { return v.clockPage(http.StatusOK, "", nil) }

func (v *visit) clockPage(status int, hours string, faults []fault) error {
	var clock struct {
		Now        models.Millis `json:"now"`
		AdvancedMs int64         `json:"advancedMs"`
	}
	if err := v.get("/sandbox/clock", nil, &clock); err != nil {
		return err
	}
	p := clockPage{
		Now: clock.Now, Steps: clockSteps, Hours: hours, Ahead: time.Duration(clock.AdvancedMs) * time.Millisecond,
	}
	return v.render(status, "clock", &base{Title: "Clock", Tab: "clock", Faults: faults}, p)
}

// moveClock advances the clock, by the step of a button or by the hours of the form.
func (c *Console) moveClock(v *visit) error {
	hours := v.form("hours")
	ms := literal(v.form("advanceMs"))
	if ms == nil {
		n, ok := parseHours(hours)
		if !ok {
			return v.clockPage(http.StatusBadRequest, hours,
				[]fault{{Message: "The hours must be a number in range.", Target: "hours"}})
		}
		ms = n
	}
	refusal, err := refused(v.post("/sandbox/clock", map[string]any{"advanceMs": ms}, nil))
	if refusal != nil {
		return v.clockPage(refusal.Status, hours, refusal.faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(Path + "/clock")
}

// parseHours reads hours with a decimal fraction, and returns them in milliseconds. It refuses
// numbers that no JSON integer of the API can hold.
func parseHours(text string) (ms int64, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	n *= float64(time.Hour.Milliseconds())
	if err != nil || !(math.Abs(n) <= float64(models.MaxAmount)) { // NaN is not in range either
		return 0, false
	}
	return int64(n), true
}
