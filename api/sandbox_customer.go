package api

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"partnerbilling/api/strictjson"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

// checkBehaviour refuses a text that is no behaviour of a sandbox account.
var checkBehaviour = isOneOf(models.Behaviours)

// readBehaviour decodes the field behaviour: how the account of a sandbox customer behaves. The
// default is that it pays.
func readBehaviour(body strictjson.Fields) models.Behaviour {
	if text, ok := body.OptionalString("behaviour", checkBehaviour); ok {
		return models.Behaviour(text)
	}
	return models.BehaviourPays
}

// newSandboxParty generates a customer with a sandbox account. It opens the account first: an
// unused account does no harm, but a link without an account would.
func newSandboxParty(ctx context.Context, store *models.Store, behaviour models.Behaviour) (models.Party, error) {
	id := uuid.NewString()
	party := models.Party{CustomerID: "sandbox-customer-" + id, AgreementID: "sandbox-agreement-" + id}
	return party, store.OpenSandboxAccount(ctx, party.AgreementID, behaviour)
}

// openPayingAccount opens a sandbox account that pays, for an agreement of the customer app. It
// changes nothing if the agreement has an account. It must be called before the agreement is used.
func openPayingAccount(ctx context.Context, store *models.Store, agreementID string) error {
	return store.OpenSandboxAccount(ctx, agreementID, models.BehaviourPays)
}

// behaviourChoices describes the behaviours of sandbox accounts for a form, in which "Pays" is
// preselected.
func behaviourChoices() []web.Choice {
	labels := map[models.Behaviour][2]string{
		models.BehaviourPays:               {"Pays", "every debit succeeds"},
		models.BehaviourInsufficientFunds:  {"Has no money", "debits fail with insufficientFunds"},
		models.BehaviourAccountUnavailable: {"Account unavailable", "debits fail with accountUnavailable"},
		models.BehaviourLimitExceeded:      {"Over the limit", "debits fail with limitExceeded"},
		models.BehaviourDeclines:           {"Declines", "the customer says no: declinedByCustomer"},
		models.BehaviourSlow:               {"Slow bank", "answers after 2 seconds, then pays"},
		models.BehaviourBankDown:           {"Bank is down", "unavailable for 30 seconds from now, then pays"},
		models.BehaviourAnswerLost:         {"Answer gets lost", "pays, and the first answer never arrives"},
	}
	choices := make([]web.Choice, len(models.Behaviours))
	for i, b := range models.Behaviours {
		choices[i] = web.Choice{
			Value: string(b), Label: labels[b][0], Detail: labels[b][1], Chosen: b == models.BehaviourPays,
		}
	}
	return choices
}

// paymentChoices describes the behaviours for the form of a payment. It leaves out "Declines",
// which has a button of its own.
func paymentChoices() []web.Choice {
	details := map[models.Behaviour]string{
		models.BehaviourPays:               "the payment succeeds",
		models.BehaviourInsufficientFunds:  "the payment is declined: insufficient funds",
		models.BehaviourAccountUnavailable: "the payment is declined: account not available",
		models.BehaviourLimitExceeded:      "the payment is declined: over a limit",
		models.BehaviourBankDown:           "unavailable for 30 seconds from now, then pays",
	}
	choices := slices.DeleteFunc(behaviourChoices(), func(c web.Choice) bool {
		return c.Value == string(models.BehaviourDeclines)
	})
	for i, c := range choices {
		if detail, ok := details[models.Behaviour(c.Value)]; ok {
			choices[i].Detail = detail
		}
	}
	return choices
}
