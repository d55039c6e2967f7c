package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"partnerbilling/api/auth"
	"partnerbilling/api/sealed"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

var (
	errSignedOut = errors.New("console: no session, or its access token is not valid any more")
	errNoPage    = errors.New("console: no such page")
	errForm      = errors.New("console: the form is not one of ours, or too old")
)

// visit is one request to the console.
type visit struct {
	console   *Console
	ctx       context.Context
	w         http.ResponseWriter
	r         *http.Request
	session   session
	principal auth.Principal
	site      *siteName  // of pages about a Site
	calls     []madeCall // the page lists them
	partial   bool       // the client's scopes do not allow all of the page
	answered  bool
}

// serve loads the session, checks the form of a POST, and then calls page.
func (v *visit) serve(page func(*visit) error) error {
	if err := v.loadSession(); err != nil {
		return err
	}
	if v.r.Method == http.MethodPost {
		if err := v.checkForm(); err != nil {
			return err
		}
	}
	return page(v)
}

// loadSession opens the session of the cookie. Without a valid one, it begins a session without an
// access token.
func (v *visit) loadSession() error {
	if cookie, err := v.r.Cookie(cookieName); err == nil {
		s, err := v.console.open(v.ctx, cookie.Value)
		if err == nil {
			v.session = s
			return nil
		}
		if !errors.Is(err, sealed.ErrInvalid) {
			return err
		}
	}
	return v.begin(newSession(v.console.Now().Add(sessionLifetime)))
}

// begin makes s the session of the browser. It forgets the oldest Sites that do not fit into the
// cookie. It returns errLongSession if s is too long without Sites.
func (v *visit) begin(s session) error {
	sealed, err := v.console.seal(v.ctx, s)
	for errors.Is(err, errLongSession) && len(s.Sites) > 0 {
		s.Sites = s.Sites[1:]
		sealed, err = v.console.seal(v.ctx, s)
	}
	if err != nil {
		return err
	}
	v.session = s
	v.w.Header().Del("Set-Cookie")
	http.SetCookie(v.w, v.console.cookie(sealed, s.Expires))
	return nil
}

// requireSession authenticates the session's token. It returns errSignedOut if the token is not
// valid any more, or is not of an organisation's client.
func (v *visit) requireSession() error {
	if v.session.Token == "" {
		return errSignedOut
	}
	principal, err := v.console.Authenticate(v.ctx, "Bearer "+v.session.Token, v.address())
	switch {
	case errors.Is(err, auth.ErrInvalidToken) || errors.Is(err, auth.ErrNoCredentials):
		return errSignedOut
	case err != nil:
		return err
	case principal.OrganisationID.IsZero():
		return errSignedOut
	}
	v.principal = principal
	return nil
}

// address returns the browser's address; the zero Addr if it is unknown.
func (v *visit) address() netip.Addr {
	address, err := netip.ParseAddrPort(v.r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr()
}

// checkForm refuses a form that another site has sent, or that is not of this session.
func (v *visit) checkForm() error {
	if from := v.r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
		return errForm
	}
	if err := v.parseForm(); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(v.r.PostForm.Get("csrf")), []byte(v.session.CSRF)) != 1 {
		return errForm
	}
	return nil
}

// parseForm reads the fields of a form, multipart or URL-encoded. The server has bounded the body;
// see MaxBody.
func (v *visit) parseForm() error {
	kind, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil {
		return errForm
	}
	if kind == "multipart/form-data" {
		err = v.r.ParseMultipartForm(maxBatchForm)
	} else {
		err = v.r.ParseForm()
	}
	if err != nil || v.r.PostForm == nil || !isText(v.r.PostForm) {
		return errForm
	}
	return nil
}

// isText reports whether all values are UTF-8. JSON would replace other bytes silently.
func isText(values url.Values) bool {
	for _, each := range values {
		if slices.ContainsFunc(each, func(value string) bool { return !utf8.ValidString(value) }) {
			return false
		}
	}
	return true
}

// file returns the content of the file in a field of the form, "" for none.
func (v *visit) file(name string) (string, error) {
	f, _, err := v.r.FormFile(name)
	if errors.Is(err, http.ErrMissingFile) || errors.Is(err, http.ErrNotMultipart) {
		return "", nil
	}
	if err != nil {
		return "", errForm
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxBatchForm))
	if err != nil || !utf8.Valid(content) {
		return "", errForm
	}
	return string(content), nil
}

// form returns a field of the form, without white space around it.
func (v *visit) form(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }

// query returns a parameter of the page's address, without white space around it.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }

// openSite finds the Site that the page is about, and remembers it in the session. text is its
// siteId. openSite returns errNoSite unless the Site belongs to the organisation.
func (v *visit) openSite(text string) error {
	var id models.SiteID
	if id.UnmarshalText([]byte(text)) != nil {
		return errNoSite
	}
	site, err := v.console.Site(v.ctx, v.principal.OrganisationID, id)
	if errors.Is(err, models.ErrNotFound) {
		return errNoSite
	}
	if err != nil {
		return err
	}
	v.site = &siteName{site.ID, site.Name}
	if n := len(v.session.Sites); n > 0 && v.session.Sites[n-1] == id {
		return nil
	}
	s := v.session
	s.remember(id)
	return v.begin(s)
}

// sitePath returns the address of a page about the Site. query alternates names and values.
func (v *visit) sitePath(rest string, query ...any) string {
	return web.WithQuery(Path+"/sites/"+v.site.ID.String()+rest, query...)
}

// billing returns a path of the API below /billing/sites/{siteId}.
func (v *visit) billing(segments ...string) string {
	return pathOf(append([]string{"billing", "sites", v.site.ID.String()}, segments...)...)
}

// checkout returns a path of the API at or below the Site's payment intents.
func (v *visit) checkout(segments ...string) string {
	return pathOf(append([]string{"checkout", v.site.ID.String(), "payment-intent"}, segments...)...)
}

// seeOther redirects to the page that shows the result of a form.
func (v *visit) seeOther(path string) error {
	v.answered = true
	web.SeeOther(v.w, path)
	return nil
}

// render answers with a page.
func (v *visit) render(status int, name string, b *base, content any) error {
	v.complete(b, content)
	page, err := web.Execute(pages, name, b)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	v.answered = true
	web.Write(v.w, status, page)
	return nil
}

// fail answers with the page of an error.
func (v *visit) fail(err error) {
	if errors.Is(err, errSignedOut) {
		v.endSession()
		return
	}
	status, p := v.problem(err)
	if status >= http.StatusInternalServerError {
		v.console.Log.ErrorContext(v.ctx, "console page failed", "path", v.r.URL.Path, "error", err)
	}
	if err := v.render(status, "problem", &base{Title: p.Title}, p); err != nil {
		v.console.Log.ErrorContext(v.ctx, "render a problem of the console", "error", err)
		http.Error(v.w, "The page cannot be shown.", http.StatusInternalServerError)
	}
}

// endSession redirects to the sign-in page. After a GET, that page leads back to this one. The new
// session keeps the Sites.
func (v *visit) endSession() {
	s := newSession(v.console.Now().Add(sessionLifetime))
	s.Sites = v.session.Sites
	if err := v.begin(s); err != nil {
		v.fail(err)
		return
	}
	path := Path + "/session"
	if v.r.Method == http.MethodGet && v.r.URL.Path != Path {
		path = web.WithQuery(path, "next", v.r.URL.RequestURI())
	}
	_ = v.seeOther(path) // never fails
}

// problem returns the status and the page of an error.
func (v *visit) problem(err error) (int, problem) {
	var answer *apiError
	switch {
	case errors.Is(err, errNoPage):
		return http.StatusNotFound, problem{Title: "There is no such page", Message: "The address may be mistyped."}
	case errors.Is(err, errNoSite):
		return http.StatusForbidden, problem{Title: "This Site cannot be opened", Message: noSiteMessage}
	case errors.Is(err, errForm):
		return http.StatusBadRequest, problem{
			Title: "The form was not accepted",
			Message: "It was sent from another page or an earlier session. " +
				"Go back, reload the page, and send it again.",
		}
	case errors.As(err, &answer):
		p := problem{Title: fmt.Sprintf("The API answered %d", answer.Status), Faults: answer.faults,
			TraceID: answer.traceID}
		if len(p.Faults) == 0 {
			p.Message = "Its answer has no more to say."
		}
		return answer.Status, p
	case errors.Is(err, models.ErrUnavailable):
		p := problem{Title: "The service is not available", Message: "Try again in a moment."}
		return http.StatusServiceUnavailable, p
	}
	return http.StatusInternalServerError, problem{Title: "Something went wrong", Message: "Try again in a moment."}
}

// recover turns a panic into the page of an unknown error.
func (v *visit) recover() {
	p := recover()
	if p == nil {
		return
	}
	v.console.Log.ErrorContext(v.ctx, "panic in the console", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !v.answered {
		v.fail(fmt.Errorf("console: panic: %v", p))
	}
}
