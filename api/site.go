package api

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"partnerbilling/models"
)

// siteCacheSize is the maximum number of cached Sites. An entry never expires, because a Site never
// changes its organisation. A missing Site is not cached.
const siteCacheSize = 10_000

// siteKey identifies a cached Site of an organisation.
type siteKey struct {
	organisation models.OrganisationID
	site         models.SiteID
}

// siteCache finds Sites without a query for each request. It is safe for concurrent use.
type siteCache struct {
	sites Sites
	known *lru.Cache[siteKey, models.Site]
}

func newSiteCache(sites Sites) *siteCache {
	known, err := lru.New[siteKey, models.Site](siteCacheSize)
	if err != nil {
		panic(err) // impossible: the size is positive
	}
	return &siteCache{sites, known}
}

// find returns the organisation's Site that a raw path segment names by its id. It returns
// models.ErrNotFound if the segment is malformed or the organisation has no such Site.
func (c *siteCache) find(ctx context.Context, organisation models.OrganisationID, segment string) (models.Site, error) {
	var id models.SiteID
	text, err := decodePath(segment)
	if err != nil || id.UnmarshalText([]byte(text)) != nil {
		return models.Site{}, models.ErrNotFound
	}
	key := siteKey{organisation, id}
	if site, ok := c.known.Get(key); ok {
		return site, nil
	}
	site, err := c.sites.Site(ctx, organisation, id)
	if err == nil {
		c.known.Add(key, site)
	}
	return site, err
}
