package models_test

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (p *planned) runPlatform() {
	s, now := p.store, time.Now().UnixMilli()
	client, err := s.CreateClient(p.t.Context(), p.site.OrganisationID, "client",
		[]models.Scope{models.ScopeCustomersRead})
	must(p.t, err)
	p.call("CreateClient", func(ctx context.Context) error {
		return only(s.CreateClient(ctx, p.site.OrganisationID, "client", []models.Scope{models.ScopeCustomersRead}))
	})
	p.call("Client", func(ctx context.Context) error { return only(s.Client(ctx, client.ID)) })
	p.call("Clients", func(ctx context.Context) error { return only(s.Clients(ctx, p.site.OrganisationID)) })
	p.call("ClientCredentials", func(ctx context.Context) error { return only(s.ClientCredentials(ctx, client.ID)) })
	p.call("SetClientScopes", func(ctx context.Context) error {
		return s.SetClientScopes(ctx, client.ID, []models.Scope{models.ScopeCustomersWrite})
	})
	p.call("SetClientJWKS", func(ctx context.Context) error {
		return s.SetClientJWKS(ctx, client.ID, []byte(`{"keys":[]}`))
	})
	p.call("SetClientAddresses", func(ctx context.Context) error { return s.SetClientAddresses(ctx, client.ID, nil) })
	p.call("CreateClientWithSecret", func(ctx context.Context) error {
		_, _, err := s.CreateClientWithSecret(ctx, p.site.OrganisationID, "client",
			[]models.Scope{models.ScopeCustomersRead})
		return err
	})
	p.call("RecordCredentialUse", func(ctx context.Context) error {
		return s.RecordCredentialUse(ctx, client.ID, p.name("fingerprint"))
	})
	p.call("CredentialUses", func(ctx context.Context) error { return only(s.CredentialUses(ctx, client.ID)) })
	p.call("EndAct", func(ctx context.Context) error {
		act := &models.Act{Name: models.ActMigrate, Actor: models.Actor{Kind: models.ActorOperator, Name: "jane"}}
		return s.EndAct(models.WithAct(ctx, act), nil)
	})
	p.call("AuditLog", func(ctx context.Context) error {
		all := models.AuditFilter{}
		return only(s.AuditLog(ctx, all, models.AuditPosition{At: 1}, 100))
	})
	p.call("DisableClient", func(ctx context.Context) error { return s.DisableClient(ctx, client.ID) })
	p.call("EnableClient", func(ctx context.Context) error { return s.EnableClient(ctx, client.ID) })
	p.call("AddClientSecret", func(ctx context.Context) error { return only(s.AddClientSecret(ctx, client.ID)) })
	p.call("ClientSecrets", func(ctx context.Context) error { return only(s.ClientSecrets(ctx, client.ID)) })
	secrets, err := s.ClientSecrets(p.t.Context(), client.ID)
	must(p.t, err)
	p.call("RemoveClientSecret", func(ctx context.Context) error {
		return s.RemoveClientSecret(ctx, client.ID, secrets[0].Fingerprint)
	})
	p.call("UseAssertion", func(ctx context.Context) error {
		return s.UseAssertion(ctx, client.ID, "jti", models.Millis(now)+60_000)
	})
	p.call("Now", func(ctx context.Context) error { return only(s.Now(ctx)) })
	p.call("Clock", func(ctx context.Context) error {
		_, _, err := s.Clock(ctx)
		return err
	})
	p.call("AdvanceClock", func(ctx context.Context) error { return only(s.AdvanceClock(ctx, time.Millisecond)) })
	p.call("CreateOrganisation", func(ctx context.Context) error { return only(s.CreateOrganisation(ctx, "another")) })
	p.call("CreateOrganisationWithColour", func(ctx context.Context) error {
		return only(s.CreateOrganisationWithColour(ctx, "another", "#1f5fae"))
	})
	p.call("SetOrganisationColour", func(ctx context.Context) error {
		return s.SetOrganisationColour(ctx, p.site.OrganisationID, "#101010")
	})
	p.call("Organisation", func(ctx context.Context) error { return only(s.Organisation(ctx, p.site.OrganisationID)) })
	p.call("CreateSite", func(ctx context.Context) error {
		return only(s.CreateSite(ctx, p.site.OrganisationID, "another"))
	})
	p.call("Site", func(ctx context.Context) error { return only(s.Site(ctx, p.site.OrganisationID, p.site.ID)) })
	p.call("Sites", func(ctx context.Context) error { return only(s.Sites(ctx, p.site.OrganisationID)) })
	p.call("JoinDeployment", func(ctx context.Context) error {
		return only(s.JoinDeployment(ctx, models.Deployment{Environment: "sandbox"}))
	})
	p.call("Deployment", func(ctx context.Context) error { return only(s.Deployment(ctx)) })
	p.call("CheckDurability", func(ctx context.Context) error { _ = s.CheckDurability(ctx); return nil })
	p.call("RequireDurability", func(ctx context.Context) error { _ = s.CheckDurability(ctx); return nil })
	p.call("EnsureKeys", func(ctx context.Context) error { return s.EnsureKeys(ctx, p.ring) })
	p.call("RotateKey", func(ctx context.Context) error {
		err := only(s.RotateKey(ctx, p.ring, models.KeyAccessToken))
		if errors.Is(err, models.ErrKeyRotating) { // in the first round
			return nil
		}
		return err
	})
	p.call("RetireKey", func(ctx context.Context) error {
		return expect(s.RetireKey(ctx, p.ring, models.KeyID{1}), models.ErrNotFound)
	})
	p.call("Ping", s.Ping)
	p.call("OpenAlerts", func(ctx context.Context) error { return only(s.OpenAlerts(ctx, 10)) })
	p.call("CloseAlert", func(ctx context.Context) error {
		return expect(s.CloseAlert(ctx, models.AlertLateTruth, "none"), models.ErrNotFound)
	})
	p.call("CloseOrganisationAlerts", func(ctx context.Context) error {
		_, err := s.CloseOrganisationAlerts(ctx, models.AlertLateTruth, models.OrganisationID{})
		return expect(err, models.ErrNotFound)
	})
	p.call("Figures", func(ctx context.Context) error { return only(s.Figures(ctx)) })
	trace := models.NewTraceID()
	p.call("Trace", func(ctx context.Context) error {
		return expect(only(s.Trace(ctx, p.site.OrganisationID, trace)), models.ErrNotFound)
	})
}

func (p *planned) runCustomers() {
	s := p.store
	key := &models.IdempotencyKey{ClientID: models.ClientID(uuid.New()), Path: "/p", Key: p.name("key"),
		Fingerprint: []byte("f")}
	if _, err := s.Customer(p.t.Context(), p.site.ID, "ada"); errors.Is(err, models.ErrNotFound) {
		modelstest.Customer(p.t, s, p.site.ID, "ada", models.BehaviourPays)
	}
	signing, err := p.keys.Current(p.t.Context(), models.KeySignupLink)
	must(p.t, err)
	var link models.CustomerLink
	p.call("CreateInvitation", func(ctx context.Context) (err error) {
		link, _, err = s.CreateInvitation(ctx,
			models.NewInvitation{SiteID: p.site.ID, CustomerReference: p.name("bob"), KeyID: signing.ID}, key)
		return err
	})
	p.call("LiveInvitation", func(ctx context.Context) error {
		return only(s.LiveInvitation(ctx, p.site.ID, p.name("bob")))
	})
	p.call("Customer", func(ctx context.Context) error { return only(s.Customer(ctx, p.site.ID, p.name("bob"))) })
	token, err := p.keys.SignupToken(p.t.Context(), link.ID, link.KeyID)
	must(p.t, err)
	p.call("Signup", func(ctx context.Context) error { return only(s.Signup(ctx, p.keys, token)) })
	p.call("CompleteSignup", func(ctx context.Context) error {
		return only(s.CompleteSignup(ctx, p.keys, token, models.Party{CustomerID: "c", AgreementID: "a"}))
	})
	carol := modelstest.Invite(p.t, s, p.site.ID, p.name("carol"))
	p.call("CompleteLink", func(ctx context.Context) error {
		return only(s.CompleteLink(ctx, carol.ID, models.Party{CustomerID: "c", AgreementID: "a"}))
	})
	p.call("RevokeCustomer", func(ctx context.Context) error {
		return only(s.RevokeCustomer(ctx, p.site.ID, p.name("bob")))
	})
	p.call("RevokeLink", func(ctx context.Context) error { return only(s.RevokeLink(ctx, carol.ID)) })
	for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
		p.call("ListLinks", func(ctx context.Context) error {
			return only(s.ListLinks(ctx, models.LinkQuery{SiteID: p.site.ID, State: state, Direction: models.Forward,
				Limit: 50}))
		})
	}
	p.call("OpenSandboxAccount", func(ctx context.Context) error {
		return s.OpenSandboxAccount(ctx, p.name("agreement"), models.BehaviourPays)
	})
	p.call("SetSandboxFault", func(ctx context.Context) error {
		return s.SetSandboxFault(ctx, models.SandboxFaultBankDown, 0)
	})
	p.call("ActiveSandboxFaults", func(ctx context.Context) error { return only(s.ActiveSandboxFaults(ctx)) })
	order := models.SandboxOrder{Key: p.name("key")}
	order.AgreementID, order.Amount, order.Currency = p.name("agreement"), 100, "AUD"
	p.call("DebitSandbox", func(ctx context.Context) error {
		return only(s.DebitSandbox(ctx, []models.SandboxOrder{order}))
	})
	p.call("LookupSandbox", func(ctx context.Context) error { return only(s.LookupSandbox(ctx, []string{order.Key})) })
	p.call("CancelSandbox", func(ctx context.Context) error {
		return only(s.CancelSandbox(ctx, []string{order.Key, p.name("none")}))
	})
	p.call("SandboxDebits", func(ctx context.Context) error { return only(s.SandboxDebits(ctx, "", 10)) })
	lately := models.MillisOf(time.Now().Add(-time.Hour))
	p.call("ListSandbox", func(ctx context.Context) error {
		q := models.SandboxListQuery{From: lately, To: lately.Add(24 * time.Hour), Limit: 10}
		return only(s.ListSandbox(ctx, q))
	})
}

func (p *planned) runBatches() {
	s := p.store
	var done models.Submission
	p.call("SubmitBatch", func(ctx context.Context) (err error) {
		done, err = s.SubmitBatch(ctx, modelstest.Batch(p.site, p.name("batch"), "ada", "ada", "unknown"))
		return err
	})
	dispatch := models.Dispatch{Queue: models.QueueDebits, Limit: 10, InFlight: 100_000}
	p.call("ClaimTasks", func(ctx context.Context) error {
		return only(s.ClaimTasks(ctx, done.Tasks, dispatch, dispatch))
	})
	p.call("PredictOutcomes", func(ctx context.Context) error {
		return only(s.PredictOutcomes(ctx, p.site.ID, []string{"ada", "x"}))
	})
	p.call("GetBatch", func(ctx context.Context) error { return only3(s.GetBatch(ctx, p.site.ID, p.name("batch"))) })
	p.call("GetVersionedBatch", func(ctx context.Context) error {
		_, _, _, err := s.GetVersionedBatch(ctx, p.site.ID, p.name("batch"))
		return err
	})
	p.call("BatchVersion", func(ctx context.Context) error {
		return only(s.BatchVersion(ctx, p.site.ID, p.name("batch")))
	})
	for _, state := range []models.BatchState{"", models.BatchInProgress, models.BatchSettled} {
		p.call("ListBatches", func(ctx context.Context) error {
			return only(s.ListBatches(ctx, models.BatchQuery{SiteID: p.site.ID, State: state, Direction: models.Forward,
				Limit: 50}))
		})
	}
	p.call("RowRailKey", func(ctx context.Context) error {
		return only(s.RowRailKey(ctx, p.site.ID, p.name("batch"), "row-1"))
	})

	var chunk models.Chunk
	p.call("ClaimChunk", func(ctx context.Context) (err error) {
		chunk, err = s.ClaimChunk(ctx, done.Tasks[0], models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
		return err
	})
	p.call("ExtendRows", func(ctx context.Context) error { return only(s.ExtendRows(ctx, chunk, []int{0, 1, 2})) })
	p.call("CheckRows", func(ctx context.Context) error { return only(s.CheckRows(ctx, chunk, []int{0, 1, 2})) })
	key := func(i int) string { return chunk.Rows[i].RailKey }
	p.call("FinishRows", func(ctx context.Context) error {
		return only(s.FinishRows(ctx, chunk, []models.RowResult{
			{Index: 0, RailKey: key(0), Outcome: models.OutcomeSucceeded, FromRail: true, Answered: true},
			{Index: 1, RailKey: key(1), Outcome: models.OutcomeInsufficientFunds, FromRail: true, Answered: true},
			{Index: 2, RailKey: key(2), RetryAfter: time.Hour, Alert: models.AlertRailConflict},
		}, 3))
	})
	p.call("AbandonClaim", func(ctx context.Context) error {
		return s.AbandonClaim(ctx, done.Tasks[0], models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	})
	p.call("ParkChunk", func(ctx context.Context) error { return s.ParkChunk(ctx, done.Tasks[0]) })
	p.call("CancelBatch", func(ctx context.Context) error {
		return only3(s.CancelBatch(ctx, p.site.ID, p.name("batch")))
	})
	p.call("DecideRow", func(ctx context.Context) error {
		return expect(only(s.DecideRow(ctx, p.site.ID, p.name("batch"), "row-0", models.DecidedDebited)),
			models.ErrNoDecisionNeeded)
	})
	p.call("ListMovements", func(ctx context.Context) error {
		return only(s.ListMovements(ctx, models.MovementQuery{SiteID: p.site.ID, Direction: models.Forward, Limit: 10}))
	})
	p.call("MovementsAfter", func(ctx context.Context) error {
		return only(s.MovementsAfter(ctx, p.site.ID, nil, nil, models.MovementPosition{}))
	})

	parent := modelstest.Batch(p.site, p.name("parent"), "ada", "ada", "unknown")
	held := claim(p.t, s, modelstest.Submit(p.t, s, parent).Tasks[0])
	must(p.t, only(s.FinishRows(p.t.Context(), held, []models.RowResult{
		{Index: 0, Outcome: models.OutcomeInsufficientFunds}, {Index: 1, Outcome: models.OutcomeLimitExceeded},
		{Index: 2,
			Outcome: models.OutcomeTimedOut},
	}, 3)))
	p.call("RetryBatch", func(ctx context.Context) error {
		return only(s.RetryBatch(ctx, models.NewRetry{
			SiteID: p.site.ID, OrganisationID: p.site.OrganisationID, Parent: parent.Reference,
			Reference: p.name("child"),
		}))
	})
	p.call("Trace", func(ctx context.Context) error {
		return only(s.Trace(ctx, p.site.OrganisationID, parent.TraceID))
	})
}
