package railtest

import (
	"slices"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

func TestScriptedConforms(t *testing.T) {
	Run(t, func(*testing.T) Fixture { return scriptedFixture() })
}

func scriptedFixture() Fixture {
	s := NewScripted()
	s.SetMaxAdmitted(7)
	s.Script("noSuchAgreement", Refuse(rail.AccountUnavailable))
	now := models.Millis(1_700_000_000_000)
	s.SetClock(func() models.Millis { return now })
	return Fixture{
		Rail: s,
		Open: func(_ TB, agreementID string, b models.Behaviour) {
			s.Script(agreementID, map[models.Behaviour][]Step{
				models.BehaviourInsufficientFunds: {Refuse(rail.InsufficientFunds)},
				models.BehaviourLimitExceeded:     {Refuse(rail.LimitExceeded)},
				models.BehaviourDeclines:          {Refuse(rail.DeclinedByCustomer)},
				models.BehaviourAnswerLost:        {LoseAnswer},
				models.BehaviourBankDown:          slices.Repeat([]Step{Unavailable}, 1000),
			}[b]...)
		},
		Debited: func(TB) map[string]models.Amount { return s.Amounts() },
		Complete: func(TB) {
			s.mu.Lock()
			defer s.mu.Unlock()
			now++
		},
	}
}
