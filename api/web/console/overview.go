package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"partnerbilling/models"
)

var errNoSite = errors.New("console: not a Site of the organisation")

const noSiteMessage = "There is no such Site, or it does not belong to the organisation of this API client. " +
	"A siteId begins with site_."

// knownSites returns the Sites of the session, the latest first, without those that are not the
// organisation's. A Site that cannot be read now has the name "".
func (v *visit) knownSites() []siteName {
	var sites []siteName
	for _, id := range slices.Backward(v.session.Sites) {
		site, err := v.console.Site(v.ctx, v.principal.OrganisationID, id)
		if errors.Is(err, models.ErrNotFound) {
			continue
		}
		sites = append(sites, siteName{id, site.Name})
	}
	return sites
}

// overviewPage is the first page of the console.
type overviewPage struct {
	Client    models.ClientID
	Scopes    []models.Scope
	Endpoints []endpointItem
	SiteID    string // of the form, as typed
}

func (c *Console) overview(v *visit) error { return v.overviewPage(http.StatusOK, overviewPage{}, nil) }

func (v *visit) overviewPage(status int, p overviewPage, faults []fault) error {
	p.Client, p.Scopes = v.principal.ClientID, v.principal.Scopes
	endpoints, err := v.endpoints()
	if err := v.withinScope(err); err != nil {
		return err
	}
	p.Endpoints = endpoints
	return v.render(status, "overview", &base{Title: "Overview", Tab: "overview", Faults: faults}, p)
}

// addSite opens the Site that the form names. The form exists because no operation of the API lists
// an organisation's Sites.
func (c *Console) addSite(v *visit) error {
	err := v.openSite(v.form("siteId"))
	if errors.Is(err, errNoSite) {
		faults := []fault{{Message: noSiteMessage, Target: "siteId"}}
		return v.overviewPage(http.StatusForbidden, overviewPage{SiteID: v.form("siteId")}, faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath(""))
}

// removeSite removes a Site from the session.
func (c *Console) removeSite(v *visit) error {
	s := v.session
	removed := v.form("siteId")
	s.Sites = slices.DeleteFunc(slices.Clone(s.Sites), func(id models.SiteID) bool { return id.String() == removed })
	if err := v.begin(s); err != nil {
		return err
	}
	return v.seeOther(Path)
}

// siteOverviewPage is the first page of a Site, a summary.
type siteOverviewPage struct {
	Customers []stateCount
	Batches   batchList
	Payments  paymentList
	Movements movementTotals
	Today     string // the date of Movements, for people
}

// stateCount is the number of customers in a state.
type stateCount struct {
	State string
	Count int
}

// movementTotals are the totals of a list of movements: the amount in minor units, and the number.
type movementTotals struct {
	TotalAmount models.Amount `json:"totalAmount"`
	TotalItems  int64         `json:"totalItems"`
}

func (c *Console) siteOverview(v *visit) error {
	var p siteOverviewPage
	for _, state := range models.LinkStates {
		var list page
		err := v.get(v.billing("customers"), url.Values{"limit": {"1"}, "state": {string(state)}}, &list)
		if err := v.withinScope(err); err != nil {
			return err
		}
		p.Customers = append(p.Customers, stateCount{string(state), integer(list.TotalItems)})
	}
	five := url.Values{"limit": {"5"}}
	if err := v.withinScope(v.get(v.billing("batches"), five, &p.Batches)); err != nil {
		return err
	}
	if err := v.withinScope(v.get(v.checkout(), five, &p.Payments)); err != nil {
		return err
	}
	now, err := c.ServiceTime(v.ctx)
	if err != nil {
		return err
	}
	day := models.MillisOf(now.Time().Truncate(24 * time.Hour))
	p.Today = day.Time().Format("2 January 2006")
	query := url.Values{"limit": {"1"}, "from": {strconv.FormatInt(int64(day), 10)}}
	if err := v.withinScope(v.get(v.billing("movements"), query, &p.Movements)); err != nil {
		return err
	}
	return v.render(http.StatusOK, "site", &base{
		Title: v.site.Name, Tab: "site", Poll: p.Batches.open() || p.Payments.open(),
	}, p)
}
