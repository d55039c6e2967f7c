package railtest

import (
	"slices"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// TestScriptedConforms runs the part of the suite that knows no time on the double.
func TestScriptedConforms(t *testing.T) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"LostAnswer": testLostAnswer, "Repeat": testRepeat, "KeyReused": testKeyReused, "SameKeyInOneCall": testSameKeyInOneCall,
		"SameKeyAtOnce": testSameKeyAtOnce, "Unseen": testUnseen, "CancelThenDebit": testCancelThenDebit,
		"DebitThenCancel": testDebitThenCancel, "CancelRacesDebit": testCancelRacesDebit, "Many": testMany, "None": testNone,
		"OddKeys": testOddKeys, "InvalidItems": testInvalidItems, "ContextEndedBefore": testContextEndedBefore,
		"Machine": testMachine, "Turns": testTurns, "TurnsEndWithTheContext": testTurnsEndWithTheContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, scriptedFixture())
		})
	}
}

func scriptedFixture() Fixture {
	s := NewScripted()
	s.AllowAtMost(7)
	s.Script("noSuchAgreement", Refuse(rail.AccountUnavailable))
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
	}
}
