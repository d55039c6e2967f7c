package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"strings"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

// MaxHits is the maximum number of hits of a search.
const MaxHits = 50

var (
	//go:embed search_references.sql
	searchReferencesText string
	searchReferencesSQL  = postgres.SQL(searchReferencesText)
	//go:embed search_trace.sql
	searchTraceText string
	searchTraceSQL  = postgres.SQL(searchTraceText)

	searchOrganisationSQL = postgres.SQL(`
SELECT 'organisation' AS kind, 'org_' || id AS id, id AS organisation_id, name AS detail, created_at AS at
FROM organisations WHERE id = :id`)
	searchSiteSQL = postgres.SQL(`
SELECT 'site' AS kind, 'site_' || id AS id, organisation_id, id AS site_id, name AS detail, created_at AS at
FROM sites WHERE id = :id`)
	searchClientSQL = postgres.SQL(`
SELECT 'client' AS kind, 'cli_' || id AS id, organisation_id,
       name || CASE WHEN disabled_at IS NULL THEN '' ELSE ', disabled' END AS detail, created_at AS at
FROM api_clients WHERE id = :id`)
	searchBatchSQL = postgres.SQL(`
SELECT 'batch' AS kind, b.batch_reference AS id, b.organisation_id, b.site_id, b.state::text AS detail,
       b.submitted_at AS at
FROM sites s CROSS JOIN LATERAL (SELECT * FROM batches x WHERE x.site_id = s.id AND x.id = :id LIMIT 1) b`)
	searchIntentSQL = postgres.SQL(`
SELECT 'paymentIntent' AS kind, 'pi_' || id AS id, organisation_id, site_id,
       coalesce(transaction_status::text, state::text) AS detail, created_at AS at
FROM payment_intents WHERE id = :id`)
	searchEventSQL = postgres.SQL(`
SELECT 'webhookEvent' AS kind, 'evt_' || e.id AS id, e.organisation_id, e.site_id, e.type || ', ' || e.status AS detail,
       e.created_at AS at
FROM organisations o CROSS JOIN LATERAL (
    SELECT * FROM webhook_events x WHERE x.organisation_id = o.id AND x.id = :id LIMIT 1) e`)
	searchLinkSQL = postgres.SQL(`
SELECT 'customer' AS kind, l.customer_reference AS id, s.organisation_id, l.site_id, l.state::text AS detail,
       l.invited_at AS at
FROM customer_links l JOIN sites s ON s.id = l.site_id WHERE l.id = :id`)
)

// Search finds what an operator names. It takes the text as an id (with or without its prefix) or a
// trace id, then as a rail key, and then as a partner's reference or a part of an organisation's or
// client's name. It returns the hits of the first step that has any, at most MaxHits.
func (s *Store) Search(ctx context.Context, text string) (hits []Hit, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	// Without a hit, the search goes on: a partner's reference may look like an id or a trace id.
	if hits, err = s.searchNamed(ctx, text); err != nil || len(hits) > 0 {
		return hits, wrap("search", err)
	}
	if subjects, err := s.DebitSubjects(ctx, []string{text}); err != nil {
		return nil, wrap("search", err)
	} else if len(subjects) > 0 {
		return s.searchSubjects(ctx, subjects)
	}
	if ValidateReference(text) != nil {
		return nil, nil //nolint:nilerr // nothing has such a reference
	}
	err = s.pg.Select(ctx, searchReferencesSQL, postgres.Args{"text": text, "most": MaxHits}, &hits)
	return hits, wrap("search", err)
}

// searchNamed finds what has the text as its id, with or without the prefix, or as the trace id of
// the request that stored it.
func (s *Store) searchNamed(ctx context.Context, text string) (hits []Hit, err error) {
	if statement, id, ok := searchByID(text); ok {
		err = s.pg.Select(ctx, statement, postgres.Args{"id": id}, &hits)
		return hits, err
	}
	if id, ok := parseBareID(text); ok {
		return s.searchBareID(ctx, id)
	}
	if trace, err := ParseTraceID(text); err == nil {
		return s.searchTrace(ctx, trace)
	}
	return nil, nil
}

// searchByID parses an id with its prefix, and returns the statement that finds its row. ok is
// false if the text is no such id.
func searchByID(text string) (statement postgres.Statement, id any, ok bool) {
	prefix, _, _ := strings.Cut(text, "_")
	var err error
	switch prefix {
	case organisationNoun{}.prefix():
		statement = searchOrganisationSQL
		id, err = ParseID[organisationNoun](text)
	case siteNoun{}.prefix():
		statement = searchSiteSQL
		id, err = ParseID[siteNoun](text)
	case clientNoun{}.prefix():
		statement = searchClientSQL
		id, err = ParseID[clientNoun](text)
	case batchNoun{}.prefix():
		statement = searchBatchSQL
		id, err = ParseID[batchNoun](text)
	case intentNoun{}.prefix():
		statement = searchIntentSQL
		id, err = ParseID[intentNoun](text)
	case eventNoun{}.prefix():
		statement = searchEventSQL
		id, err = ParseID[eventNoun](text)
	case linkNoun{}.prefix():
		statement = searchLinkSQL
		id, err = ParseID[linkNoun](text)
	default:
		err = ErrInvalidID
	}
	return statement, id, err == nil
}

// parseBareID reads an id without its prefix, as tables and the subjects of alerts have it.
func parseBareID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// searchBareID finds what has the id, whatever its kind.
func (s *Store) searchBareID(ctx context.Context, id uuid.UUID) (hits []Hit, err error) {
	for _, statement := range []postgres.Statement{searchBatchSQL, searchIntentSQL, searchEventSQL,
		searchOrganisationSQL, searchSiteSQL, searchClientSQL, searchLinkSQL} {
		if err = s.pg.Select(ctx, statement, postgres.Args{"id": id}, &hits); err != nil || len(hits) > 0 {
			break
		}
	}
	return hits, wrap("search", err)
}

// searchTrace finds what the request with a trace id stored, whatever its organisation.
func (s *Store) searchTrace(ctx context.Context, trace TraceID) (hits []Hit, err error) {
	prefix, ok := trace.prefix()
	if !ok {
		return nil, nil
	}
	err = s.pg.Select(ctx, searchTraceSQL, traceArgs(trace, prefix), &hits)
	return hits, wrap("search a trace", err)
}

// searchSubjects returns the batches and payments of rail keys.
func (s *Store) searchSubjects(ctx context.Context, subjects []DebitSubject) (hits []Hit, err error) {
	for i := range subjects {
		d := &subjects[i]
		hit := Hit{Kind: HitBatch, ID: d.BatchReference, SiteID: d.SiteID, Detail: d.Subject()}
		if d.BatchReference == "" {
			hit.Kind, hit.ID = HitPaymentIntent, d.PaymentIntentID.String()
		}
		site, err := s.AnySite(ctx, d.SiteID)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, wrap("search", err)
		}
		hit.OrganisationID = site.OrganisationID
		hits = append(hits, hit)
	}
	return hits, nil
}
