package api

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// Large bodies are handled in turn for the organisations, however many clients they have.
func TestLargeBodiesAreFairBetweenOrganisations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory(DefaultMemoryLimit, prometheus.NewRegistry())
		s := &Server{bodies: m}
		a, b := models.OrganisationID(uuid.New()), models.OrganisationID(uuid.New())
		var order []string
		var handled []*Request
		handle := func(name string, organisation models.OrganisationID) {
			by := Principal{ClientID: models.ClientID(uuid.New()), OrganisationID: organisation}
			r := &Request{server: s, Principal: by}
			go func() {
				if err := m.handle(t.Context(), r, smallBody+1); err != nil {
					t.Error(err)
					return
				}
				order, handled = append(order, name), append(handled, r)
			}()
			synctest.Wait()
		}
		for range 4 { // each of another client
			handle("a", a)
		}
		handle("b", b)
		handle("none", models.OrganisationID{})
		for i := range 6 {
			handled[i].releaseBody()
			synctest.Wait()
		}
		if want := []string{"a", "a", "b", "none", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
	})
}

func TestBodiesCountForTheirOrganisation(t *testing.T) {
	t.Parallel()
	m := newBodyMemory(DefaultMemoryLimit, prometheus.NewRegistry())
	organisation := models.OrganisationID(uuid.New())
	client := models.ClientID(uuid.New())
	wantOne, wantNone := uuid.UUID(organisation).String(), uuid.UUID(client).String()
	for _, size := range []int{smallBody, smallBody + 1} {
		_, one := m.semaphoreOf(&Request{Principal: Principal{ClientID: client, OrganisationID: organisation}}, size)
		_, other := m.semaphoreOf(&Request{
			Principal: Principal{ClientID: models.ClientID(uuid.New()), OrganisationID: organisation}}, size)
		_, none := m.semaphoreOf(&Request{Principal: Principal{ClientID: client}}, size)
		if one != wantOne || other != one || none != wantNone {
			t.Errorf("%d bytes count for %s, %s and %s", size, one, other, none)
		}
	}
}
