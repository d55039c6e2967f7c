package api

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// tokenState is an authenticator of one token.
type tokenState struct {
	principal Principal
	err       error
}

func (s *tokenState) Authenticate(context.Context, string, netip.Addr) (Principal, error) {
	if s.err != nil {
		return Principal{}, s.err
	}
	return s.principal, nil
}

// A token counts for its organisation as long as it is valid, and from the address at which it was
// verified.
func TestTokensCountForTheirOrganisation(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	const lifetime = time.Hour
	here, elsewhere := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	organisation, client := uuid.New(), uuid.New()
	for name, tt := range map[string]struct {
		organisation uuid.UUID
		failure      error         // of a second check
		after        time.Duration // the first check
		from         netip.Addr
		want         uuid.UUID // zero: the address
	}{
		"valid":           {organisation, nil, lifetime - 1, here, organisation},
		"no organisation": {uuid.Nil, nil, 0, here, client},
		"expired":         {organisation, nil, lifetime, here, uuid.Nil},
		"refused":         {organisation, auth.ErrInvalidToken, 0, here, uuid.Nil},
		"not checked":     {organisation, models.ErrUnavailable, 0, here, organisation},
		"from elsewhere":  {organisation, nil, 0, elsewhere, uuid.Nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := now
			state := &tokenState{principal: Principal{
				ClientID: models.ClientID(client), OrganisationID: models.OrganisationID(tt.organisation),
				Expires: now.Add(lifetime),
			}}
			s := &Server{authenticator: state, callers: newCallerCache(func() time.Time { return clock })}
			request := func(from netip.Addr) *Request {
				r := &Request{server: s, route: &Route{Audience: Partner}, fast: &fasthttp.RequestCtx{}, address: from}
				r.fast.Request.Header.Set("Authorization", "Bearer x")
				r.slot.caller = s.callers.of(r)
				return r
			}
			first := request(here)
			if by := first.slot.caller; by.group == 0 {
				t.Errorf("an unknown token counts for %+v", by)
			}
			if err := s.authenticate(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			if state.err = tt.failure; tt.failure != nil {
				if err := s.authenticate(t.Context(), request(here)); err == nil {
					t.Fatal("authenticated")
				}
			}
			clock = now.Add(tt.after)
			if by := request(tt.from).slot.caller; by.id != tt.want || (by.group == 0) != (tt.want != uuid.Nil) {
				t.Errorf("counts for %+v, want %v", by, tt.want)
			}
		})
	}
}
