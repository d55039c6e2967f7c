package models

import (
	"context"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// siteRow is a row of the table sites.
type siteRow struct {
	bun.BaseModel `bun:"table:sites"`

	ID             SiteID         `bun:"id,pk"`
	OrganisationID OrganisationID `bun:"organisation_id"`
	Name           string         `bun:"name"`
	Currency       string         `bun:"currency"`
	CreatedAt      Millis         `bun:"created_at"`
}

func (r *siteRow) site() Site {
	return Site{r.ID, r.OrganisationID, r.Name, r.Currency, r.CreatedAt}
}

// CreateSite creates a Site of an organisation, with currency AUD. Errors: ErrName if ValidateLabel
// refuses the name; ErrNotFound for an unknown organisation.
func (s *Store) CreateSite(ctx context.Context, organisation OrganisationID, name string) (Site, error) {
	row := &siteRow{ID: NewID[siteNoun](), OrganisationID: organisation, Name: name, Currency: "AUD"}
	act := actFrom(ctx).about(SubjectSite, row.ID.String()).in(organisation, row.ID)
	if err := checkName(name); err != nil {
		return Site{}, err
	}
	act.with("name", name)
	err := s.act(ctx, func(tx postgres.Tx) error {
		_, err := tx.NewInsert().Model(row).Value("created_at", "svc_now()").Returning("created_at").Exec(ctx)
		return err
	})
	if isForeignKeyViolation(err) {
		return Site{}, notFoundError("organisation")
	}
	return row.site(), err
}

// Site returns a Site of the organisation. An unknown Site and another organisation's Site give the
// same ErrNotFound.
func (s *Store) Site(ctx context.Context, organisation OrganisationID, id SiteID) (Site, error) {
	site, err := s.AnySite(ctx, id)
	if err == nil && site.OrganisationID != organisation {
		return Site{}, notFoundError("site")
	}
	return site, err
}

// Sites returns the organisation's Sites, oldest first.
func (s *Store) Sites(ctx context.Context, organisation OrganisationID) ([]Site, error) {
	var rows []siteRow
	err := s.pg.Read(ctx, func(on bun.IDB) error {
		return on.NewSelect().Model(&rows).Where("organisation_id = ?", organisation).Order("id").Scan(ctx)
	})
	all := make([]Site, len(rows))
	for i := range rows {
		all[i] = rows[i].site()
	}
	return all, err
}

// AnySite returns a Site of any organisation; ErrNotFound if there is none.
func (s *Store) AnySite(ctx context.Context, id SiteID) (Site, error) {
	row := &siteRow{ID: id}
	err := s.pg.Read(ctx, func(on bun.IDB) error { return on.NewSelect().Model(row).WherePK().Scan(ctx) })
	if err != nil {
		return Site{}, notFound(err, "site")
	}
	return row.site(), nil
}
