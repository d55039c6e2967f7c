package console

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"partnerbilling/models"
)

// faultsPage is the page on which a partner's engineer sets faults of the sandbox's rail.
type faultsPage struct {
	Faults []faultChoice
	Spans  []faultSpan
}

// faultChoice is a fault that can be set.
type faultChoice struct {
	Name          models.SandboxFault
	Label, Detail string
	EndsAt        models.Millis // service time; 0 while the fault is not active
}

// faultSpan is a duration that the form offers for a fault.
type faultSpan struct {
	Label   string
	Seconds int
}

var faultSpans = []faultSpan{{"30 seconds", 30}, {"2 minutes", 120}, {"1 hour", 3600}}

var faultChoices = []faultChoice{
	{
		Name: models.SandboxFaultBankDown, Label: "The bank is down",
		Detail: "Debits are answered with a fault, and tried again later. " +
			"A payment that finds no bank for a minute fails.",
	},
	{
		Name: models.SandboxFaultAnswersLost, Label: "Answers get lost",
		Detail: "Debits are made, and their first answers never arrive. " +
			"The service looks them up, and debits nothing twice.",
	},
}

func (c *Console) showFaults(v *visit) error { return v.faultsPage(http.StatusOK, nil) }

func (v *visit) faultsPage(status int, faults []fault) error {
	active, err := v.console.RailFaults.ActiveSandboxFaults(v.ctx)
	if err != nil {
		return err
	}
	p := faultsPage{Spans: faultSpans}
	for _, f := range faultChoices {
		f.EndsAt = active[f.Name]
		p.Faults = append(p.Faults, f)
	}
	return v.render(status, "faults-page", &base{Title: "Faults", Tab: "faults", Poll: len(active) > 0,
		Faults: faults}, p)
}

// setFault begins a fault for a number of seconds, or ends it with 0.
func (c *Console) setFault(v *visit) error {
	seconds, err := strconv.ParseInt(v.form("seconds"), 10, 32)
	if err != nil {
		return errForm
	}
	err = c.RailFaults.SetSandboxFault(v.ctx, models.SandboxFault(v.form("fault")), time.Duration(seconds)*time.Second)
	if errors.Is(err, models.ErrSandboxFault) {
		return v.faultsPage(http.StatusBadRequest,
			[]fault{{Message: "There is no such fault, or it would last too long."}})
	}
	if err != nil {
		return err
	}
	return v.seeOther(Path + "/faults")
}
