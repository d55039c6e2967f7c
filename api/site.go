package api

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"partnerbilling/models"
)

// siteCacheSize is how many Sites are remembered. A Site never changes hands, so the answer about one holds for ever;
// that there is none is asked anew each time.
const siteCacheSize = 10_000

type siteKey struct {
	organisation models.OrganisationID
	site         models.SiteID
}

// siteCache finds Sites without asking Postgres at every request.
type siteCache struct {
	sites Sites
	known *lru.Cache[siteKey, models.Site]
}

func newSiteCache(sites Sites) *siteCache {
	known, err := lru.New[siteKey, models.Site](siteCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &siteCache{sites, known}
}

// find is the Site that a raw path segment names, if it is the organisation's; else models.ErrNotFound.
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
