package console

import (
	"net/http"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// customerList is a page of the API's list of customers.
type customerList struct {
	page
	Items []models.CustomerSummary `json:"items"`
}

// customersPage is the page with the list of a Site's customers, its filters, and the form of an
// invitation.
type customersPage struct {
	List       customerList
	States     []models.LinkState
	Chosen     string
	From, To   string // dates, as they were filled in
	Pager      pager
	Reference  string // customerReference of the form
	Behaviours []web.Choice
}

func (c *Console) listCustomers(v *visit) error {
	return v.customersPage(http.StatusOK, customersPage{}, nil)
}

func (v *visit) customersPage(status int, p customersPage, faults []fault) error {
	p.States, p.Chosen, p.Behaviours = models.LinkStates, v.query("state"), v.console.Behaviours
	p.From, p.To = v.query("from"), v.query("to")
	q := v.listQuery("state")
	if q.Get("cursor") == "" {
		setDay(q, "invitedFrom", p.From, 0)
		setDay(q, "invitedTo", p.To, 24*time.Hour-time.Millisecond)
	}
	if err := v.get(v.billing("customers"), q, &p.List); err != nil {
		return err
	}
	p.Pager = v.pager(p.List.page, "state", "from", "to")
	return v.render(status, "customers", &base{Title: "Customers", Tab: "customers", Faults: faults}, p)
}

// inviteCustomer makes an invitation. If the form has a behaviour, it also signs the customer up.
func (c *Console) inviteCustomer(v *visit) error {
	reference := v.form("customerReference")
	refusal, err := refused(v.post(v.billing("customers", "invitations"),
		object("customerReference", reference), nil))
	if refusal != nil {
		return v.customersPage(refusal.Status, customersPage{Reference: reference}, refusal.faults)
	}
	if err != nil {
		return err
	}
	if behaviour := v.form("behaviour"); behaviour != "" {
		if err := v.post(v.signupPath(reference), object("behaviour", behaviour), nil); err != nil {
			return err
		}
		return v.seeOther(v.sitePath("/customers"))
	}
	return v.seeOther(v.invitationPath(reference))
}

// invitationPath returns the path of a customer's page that shows the sign-up link.
func (v *visit) invitationPath(reference string) string {
	return v.sitePath("/customer", "ref", reference, "show", "link")
}

// signupPath returns the API path that signs a sandbox customer up.
func (v *visit) signupPath(reference string) string {
	return pathOf("sandbox", "sites", v.site.ID.String(), "customers", reference, "signup")
}

// customerPage is the page of a customer reference, with its newest link.
type customerPage struct {
	Customer   models.CustomerSummary
	SignupURL  string // of a live invitation, if the address asks for it; otherwise ""
	Behaviours []web.Choice
}

func (c *Console) showCustomer(v *visit) error {
	return v.customerPage(http.StatusOK, v.query("ref"), nil)
}

func (v *visit) customerPage(status int, reference string, faults []fault) error {
	p := customerPage{Behaviours: v.console.Behaviours}
	if err := v.get(v.billing("customers", reference), nil, &p.Customer); err != nil {
		return err
	}
	if v.query("show") == "link" && p.Customer.State == models.LinkInvited {
		refusal, err := v.invitationLink(reference, &p)
		if err != nil {
			return err
		}
		if refusal != nil {
			faults = append(faults, refusal.faults...)
		}
	}
	return v.render(status, "customer", &base{Title: reference, Tab: "customers", Faults: faults}, p)
}

// invitationLink fills in the sign-up link, or returns the answer with which the API refuses it.
func (v *visit) invitationLink(reference string, p *customerPage) (*apiError, error) {
	var again struct {
		SignupURL string `json:"signupUrl"`
	}
	refusal, err := refused(v.post(v.billing("customers", reference, "invitation-link"), nil, &again))
	p.SignupURL = again.SignupURL
	return refusal, v.withinScope(err)
}

// changeCustomer signs a customer up, revokes the link, or leads to the page with the sign-up link.
func (c *Console) changeCustomer(v *visit) error {
	reference := v.form("ref")
	var err error
	switch v.form("action") {
	case "signup":
		err = v.post(v.signupPath(reference), object("behaviour", v.form("behaviour")), nil)
	case "revoke":
		err = v.post(v.billing("customers", reference, "revocation"), nil, nil)
	case "link":
		return v.seeOther(v.invitationPath(reference))
	default:
		return errForm
	}
	refusal, err := refused(err)
	if refusal != nil {
		return v.customerPage(refusal.Status, reference, refusal.faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath("/customer", "ref", reference))
}
