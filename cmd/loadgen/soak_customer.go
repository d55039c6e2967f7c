package main

import (
	"context"
	"fmt"
	"strings"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// invite invites a new customer of the Site. Invitations and sign-ups happen one at a time and in
// order. The reference of a customer is thus the customer's index in s.customers.
func (s *soakSite) invite(ctx context.Context) error {
	ctx = withKind(ctx, "invite")
	s.inviting.Lock()
	defer s.inviting.Unlock()
	s.state.Lock()
	reference := fmt.Sprint(len(s.customers) + len(s.invited))
	s.state.Unlock()
	var made client.Invitation
	_, err := s.call(ctx, func() (err error) {
		made, err = s.api.CreateInvitation(ctx, s.site.String(), client.NewInvitation{CustomerReference: reference},
			"invitation-"+reference)
		return err
	})
	if err != nil {
		return fmt.Errorf("invite %s: %w", reference, err)
	}
	token := made.SignupURL[strings.LastIndex(made.SignupURL, "/")+1:]
	give(s, &s.invited, soakInvitee{reference, token})
	return nil
}

// signUpInvitee signs up the customer who was invited first. If there is none, it invites one.
func (s *soakSite) signUpInvitee(ctx context.Context) error {
	s.signing.Lock()
	defer s.signing.Unlock()
	s.state.Lock()
	var invitee soakInvitee
	if len(s.invited) > 0 {
		invitee = s.invited[0]
	}
	s.state.Unlock()
	if invitee.token == "" {
		return s.invite(ctx)
	}
	c := &haCustomer{
		reference: invitee.reference, agreement: fmt.Sprintf("agreement %s %s", s.site, invitee.reference),
		behaviour: models.BehaviourPays,
	}
	if err := s.fleet.railStore.OpenSandboxAccount(ctx, c.agreement, c.behaviour); err != nil {
		return err
	}
	ctx = withKind(ctx, "sign up")
	if _, err := s.call(ctx, func() error { return s.till.app.signUp(ctx, invitee.token, c.agreement) }); err != nil {
		return fmt.Errorf("sign %s up: %w", c.reference, err)
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.invited = s.invited[1:]
	s.customers, s.guests, s.linked = append(s.customers, c), append(s.guests, c), append(s.linked, c)
	return nil
}

// revokeCustomer revokes the link of the customer who signed up first of those in s.linked. If
// there is none, it signs one up.
func (s *soakSite) revokeCustomer(ctx context.Context) error {
	c, ok := take(s, &s.linked)
	if !ok {
		return s.signUpInvitee(ctx)
	}
	return s.revoke(withKind(ctx, "revoke a customer"), c)
}

// auditGuests checks that the customers who have signed up in the run are linked or, if the partner
// has revoked them, revoked. It records differences as breaches.
func (s *soakSite) auditGuests(ctx context.Context) error {
	for _, c := range s.guests {
		got, err := s.api.Customer(ctx, s.site.String(), c.reference)
		if err != nil && !isMissing(err) {
			return err
		}
		want := "linked"
		if !c.revoked.from.IsZero() {
			want = "revoked"
		}
		if got.State != want {
			s.breach("customer %s of Site %d is %q, not %s", c.reference, s.number, got.State, want)
		}
	}
	return nil
}
