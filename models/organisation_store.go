package models

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// organisationRow is a row of the table organisations.
type organisationRow struct {
	bun.BaseModel `bun:"table:organisations"`

	ID        OrganisationID `bun:"id,pk"`
	Name      string         `bun:"name"`
	Colour    Colour         `bun:"colour,nullzero"`
	CreatedAt Millis         `bun:"created_at"`
}

func (r *organisationRow) organisation() Organisation {
	return Organisation{r.ID, r.Name, r.Colour, r.CreatedAt}
}

// CreateOrganisation creates an organisation without Sites and clients. The name is for operators
// and customers, and need not be unique; ErrName if it does not pass ValidateLabel.
func (s *Store) CreateOrganisation(ctx context.Context, name string) (Organisation, error) {
	return s.CreateOrganisationWithColour(ctx, name, "")
}

// CreateOrganisationWithColour creates an organisation as CreateOrganisation does, and sets the
// colour of its hosted pages. "" is none: the colour then derives from the name.
func (s *Store) CreateOrganisationWithColour(ctx context.Context, name string, colour Colour) (Organisation, error) {
	row := &organisationRow{ID: NewID[organisationNoun](), Name: name, Colour: colour}
	act := actFrom(ctx).about(SubjectOrganisation, row.ID.String()).in(row.ID, SiteID{})
	if err := checkName(name); err != nil {
		return Organisation{}, err
	}
	act.with("name", name)
	if colour != "" {
		act.with("colour", colour)
	}
	err := s.act(ctx, func(tx postgres.Tx) error {
		_, err := tx.NewInsert().Model(row).Value("created_at", "svc_now()").Returning("created_at").Exec(ctx)
		return err
	})
	return row.organisation(), err
}

// SetOrganisationColour replaces the colour of the organisation's hosted pages. "" is none: the
// colour then derives from the name. ErrNotFound: there is no such organisation.
func (s *Store) SetOrganisationColour(ctx context.Context, id OrganisationID, colour Colour) error {
	act := actFrom(ctx).about(SubjectOrganisation, id.String()).with("colour", colour)
	return s.act(ctx, func(tx postgres.Tx) error {
		row := &organisationRow{ID: id}
		if err := tx.NewSelect().Model(row).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return notFound(err, "organisation")
		}
		act.in(id, SiteID{}).with("colourBefore", row.Colour)
		row.Colour = colour
		_, err := tx.NewUpdate().Model(row).Column("colour").WherePK().Exec(ctx)
		return err
	})
}

// ErrName says that ValidateLabel refuses a name.
var ErrName = errors.New("invalid name")

// checkName returns ErrName, with the reason, if ValidateLabel refuses the name.
func checkName(name string) error {
	if err := ValidateLabel(name); err != nil {
		return fmt.Errorf("%w: it %w", ErrName, err)
	}
	return nil
}

// Organisation returns the organisation with the id; ErrNotFound if there is none.
func (s *Store) Organisation(ctx context.Context, id OrganisationID) (Organisation, error) {
	row := &organisationRow{ID: id}
	err := s.pg.Read(ctx, func(on bun.IDB) error { return on.NewSelect().Model(row).WherePK().Scan(ctx) })
	if err != nil {
		return Organisation{}, notFound(err, "organisation")
	}
	return row.organisation(), nil
}

// Organisations returns all organisations, oldest first.
func (s *Store) Organisations(ctx context.Context) ([]Organisation, error) {
	var rows []organisationRow
	err := s.pg.Read(ctx, func(on bun.IDB) error { return on.NewSelect().Model(&rows).Order("id").Scan(ctx) })
	all := make([]Organisation, len(rows))
	for i := range rows {
		all[i] = rows[i].organisation()
	}
	return all, err
}
