package main

import (
	"maps"
	"slices"
	"strings"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (a admin) actCases(store *models.Store) map[models.ActName]actCase {
	site := modelstest.Site(a, store)
	organisation := site.OrganisationID.String()
	ofClient := func(before func(id models.ClientID), command ...string) actCase {
		return actCase{subject: models.SubjectClient, args: func() []string {
			client, _, err := store.CreateClientWithSecret(a.Context(), site.OrganisationID, "client",
				models.PartnerScopes)
			if err != nil {
				a.Fatal(err)
			}
			if before != nil {
				before(client.ID)
			}
			args := slices.Clone(command)
			args[slices.Index(args, "CLIENT")] = client.ID.String()
			return append([]string{"admin", "client"}, args...)
		}}
	}
	plain := func(subject models.SubjectKind, args ...string) actCase {
		return actCase{subject: subject, args: func() []string { return args }}
	}
	cases := map[models.ActName]actCase{
		models.ActAddOrganisation: plain(models.SubjectOrganisation, "admin", "organisation", "add", "Harbour"),
		models.ActColourOrganisation: plain(models.SubjectOrganisation, "admin", "organisation", "colour",
			organisation, "#1F5FAE"),
		models.ActAddSite:            plain(models.SubjectSite, "admin", "site", "add", organisation, "Quay Street"),
		models.ActAddClient:          plain(models.SubjectClient, "admin", "client", "add", organisation),
		models.ActSetClientScopes:    ofClient(nil, "scopes", "CLIENT", "billing:customers:read"),
		models.ActSetClientAddresses: ofClient(nil, "allow-addresses", "CLIENT", "192.0.2.0/24", "2001:db8::1"),
		models.ActDisableClient:      ofClient(nil, "disable", "CLIENT"),
		models.ActEnableClient:       ofClient(a.disable(store), "enable", "CLIENT"),
		models.ActAddClientSecret:    ofClient(nil, "secret", "add", "CLIENT"),
		models.ActRemoveClientSecret: {subject: models.SubjectClient, args: a.removeSecret(store, site)},
		models.ActSetClientKeys:      ofClient(nil, "keys", "set", "CLIENT", a.keySet()),
		models.ActRemoveClientKeys:   ofClient(nil, "keys", "remove", "CLIENT"),
		models.ActRotateKey:          plain(models.SubjectKey, "admin", "keys", "rotate", "accessToken"),
		models.ActRetireKey: {subject: models.SubjectKey, args: func() []string {
			key, _, _ := strings.Cut(a.run("keys", "rotate", "signupLink"), ",")
			if key == "" {
				a.Fatal("no key")
			}
			return []string{"admin", "keys", "retire", key}
		}},
		models.ActReseal:           plain(models.SubjectMasterKey, "admin", "keys", "reseal"),
		models.ActDecideRestored:   plain(models.SubjectDatabase, "admin", "restored"),
		models.ActRecountCustomers: plain(models.SubjectSite, "admin", "recount", site.ID.String()),
		models.ActMigrate:          plain("", "migrate", "up"),
		models.ActEraseCustomer: {subject: models.SubjectCustomerLink, args: func() []string {
			reference := string(models.NewTraceID())
			modelstest.Invite(a, store, site.ID, reference)
			return []string{"admin", "customer", "erase", site.ID.String(), reference}
		}},
		models.ActReplaceRail: {subject: models.SubjectRail, env: []string{"SVC_ENV", "sandbox", "SVC_RAIL", "http",
			"SVC_RAIL_ID", "b"}, args: func() []string { return []string{"admin", "rail", "replace"} }},
	}
	maps.Copy(cases, a.moneyCases(store, site))
	maps.Copy(cases, a.partnerCases(store))
	return cases
}

// partnerCases are the acts for a partner, each for an organisation of its own.
func (a admin) partnerCases(store *models.Store) map[models.ActName]actCase {
	const why = "--reason=the partner asked"
	of := func(subject models.SubjectKind, prepare func(models.OrganisationID) error, command ...string) actCase {
		return actCase{subject: subject, args: func() []string {
			organisation := modelstest.Site(a, store).OrganisationID
			if err := prepare(organisation); err != nil {
				a.Fatal(err)
			}
			return append(append([]string{"admin"}, command...), organisation.String(), why)
		}}
	}
	nothing := func(models.OrganisationID) error { return nil }
	pause := func(o models.OrganisationID) error { return store.PauseDebits(a.Context(), o) }
	disable := func(o models.OrganisationID) error {
		_, _, err := store.PutWebhookEndpoint(a.Context(), modelstest.Keyring(a, a.env["SVC_MASTER_KEY"]), o,
			models.SiteID{}, "https://partner.example/hook")
		if err == nil {
			_, err = store.DB().ExecContext(a.Context(), "UPDATE webhook_endpoints SET disabled_at = 1")
		}
		return err
	}
	queue := func(act string, prepare func()) actCase {
		return actCase{subject: models.SubjectQueue, args: func() []string {
			prepare()
			return []string{"admin", "queue", act, "webhooks", why}
		}}
	}
	return map[models.ActName]actCase{
		models.ActPauseDebits:         of(models.SubjectOrganisation, nothing, "debits", "pause"),
		models.ActResumeDebits:        of(models.SubjectOrganisation, pause, "debits", "resume"),
		models.ActRedeliverForPartner: of(models.SubjectWebhookEvent, nothing, "webhook", "redeliver"),
		models.ActUnparkEndpoint:      of(models.SubjectWebhookEndpoint, disable, "webhook", "unpark"),
		models.ActPauseQueue: queue("pause",
			func() { _ = store.ResumeQueue(a.Context(), models.QueueWebhooks) }),
		models.ActResumeQueue: queue("resume",
			func() { _ = store.PauseQueue(a.Context(), models.QueueWebhooks) }),
		models.ActLookUpDebit: {subject: models.SubjectRailKey, args: func() []string {
			return []string{"admin", "debit", "lookup", "r1_key"}
		}},
	}
}

func (a admin) disable(store *models.Store) func(models.ClientID) {
	return func(id models.ClientID) {
		if err := store.DisableClient(a.Context(), id); err != nil {
			a.Fatal(err)
		}
	}
}

func (a admin) removeSecret(store *models.Store, site models.Site) func() []string {
	return func() []string {
		client, secret, err := store.CreateClientWithSecret(a.Context(), site.OrganisationID, "client",
			models.PartnerScopes)
		if err != nil {
			a.Fatal(err)
		}
		return []string{"admin", "client", "secret", "remove", client.ID.String(), models.FingerprintOf(secret)}
	}
}

// keySet writes a valid key set.
func (a admin) keySet() string {
	return writeKeySet(a.T, map[string]string{
		"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
	})
}

func (a admin) moneyCases(store *models.Store, site models.Site) map[models.ActName]actCase {
	n := 0
	return map[models.ActName]actCase{
		models.ActCloseAlert: {subject: models.SubjectAlert, args: func() []string {
			_, err := store.DB().ExecContext(a.Context(), "SELECT raise_alert('lateTruth', 'key', NULL, NULL, '', '')")
			if err != nil {
				a.Fatal(err)
			}
			return []string{"admin", "alerts", "close", "lateTruth", "key"}
		}},
		models.ActAcknowledgeAlert: {subject: models.SubjectAlert, args: func() []string {
			_, err := store.DB().ExecContext(a.Context(), "SELECT raise_alert('lateTruth', 'mine', NULL, NULL, '', '')")
			if err != nil {
				a.Fatal(err)
			}
			return []string{"admin", "alerts", "acknowledge", "lateTruth", "mine"}
		}},
		models.ActDecideRow: {subject: models.SubjectBatchRow, args: func() []string {
			n++
			reference := "batch " + string(rune('a'+n))
			modelstest.Submit(a, store, modelstest.Batch(site, reference, "ada"))
			a.unconfirm(store)
			return []string{"admin", "debit", "decide", site.ID.String(), reference, "row-0", "--debited"}
		}},
		models.ActDecidePayment: {subject: models.SubjectPaymentIntent, args: func() []string {
			intent := modelstest.Intent(a, store, site.ID, 500)
			modelstest.Pay(a, store, intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
			return []string{"admin", "debit", "decide-payment", intent.ID.String(), "--not-debited"}
		}},
	}
}

// unconfirm lets the open batch reach its deadline in doubt, after a restore.
func (a admin) unconfirm(store *models.Store) {
	a.Helper()
	if _, err := store.BeginEpoch(a.Context()); err != nil {
		a.Fatal(err)
	}
	modelstest.AdvanceClock(a, store, models.SettleWithin)
	if _, err := store.CloseOverdueBatch(a.Context()); err != nil {
		a.Fatal(err)
	}
}
