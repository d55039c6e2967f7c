package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"partnerbilling/api/operator"
	"partnerbilling/api/web"
	"partnerbilling/models"
)

var (
	errNoPage = errors.New("ops: no such page")
	errForm   = errors.New("ops: the form is not one of ours")
	errRail   = errors.New("ops: no rail answers this process")
)

// inputError is a fault in what the operator has typed, as a message for the page.
type inputError string

func (e inputError) Error() string { return string(e) }

// doneCookie is the name of the cookie with the message about the last act. The next page that does
// not reload itself shows it.
const doneCookie = "ops-done"

// visit is one request to the pages.
type visit struct {
	pages    *Pages
	ctx      context.Context
	w        http.ResponseWriter
	r        *http.Request
	operator operator.Operator
	trace    models.TraceID // of an act; "" on a page that only shows
	answered bool
}

func (v *visit) store() *models.Store { return v.pages.Store }

// serve checks parameters and form, and then calls page. A browser sends an operator's credentials
// also with the forms of other sites. Only the origin tells such forms apart.
func (v *visit) serve(page func(*visit) error) error {
	if v.r.Method == http.MethodPost && v.pages.origin.Check(v.r) != nil {
		return errForm
	}
	if v.r.ParseForm() != nil {
		return inputError("The address or the form cannot be read.")
	}
	for _, values := range v.r.Form {
		for _, text := range values {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) { // Postgres stores neither
				return inputError("A field holds bytes that are no text.")
			}
		}
	}
	return page(v)
}

// act performs an act. The audit log records how the act ends, also if the operator's role does not
// allow it.
func (v *visit) act(name models.ActName, do func(ctx context.Context) error) error {
	v.trace = models.NewTraceID()
	ctx := models.WithAct(models.WithTraceID(v.ctx, v.trace), &models.Act{
		Name: name, Reason: v.form("reason"),
		Actor: models.Actor{Kind: models.ActorOperator, Name: v.operator.Name, Origin: v.operator.Address},
	})
	err := v.allowed(name, func() error { return do(ctx) })
	return errors.Join(err, v.store().EndAct(ctx, err))
}

// allowed calls do if the operator may act and the reason is acceptable. An empty reason is left to
// do.
func (v *visit) allowed(name models.ActName, do func() error) error {
	if !v.operator.MayAct() {
		return fmt.Errorf("%s: %w", name, models.ErrRole)
	}
	if reason := v.form("reason"); reason != "" && models.CheckReason(reason) != nil {
		return models.ErrReason
	}
	return do()
}

// form returns a field of the form, without white space around it.
func (v *visit) form(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }

// query returns a parameter of the page's address, without white space around it.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }

// back redirects to the page that the form has come from. That page shows the message, unless it
// reloads itself.
func (v *visit) back(message string) error {
	target := Path
	if next, err := url.Parse(v.form("next")); err == nil && next.Host == "" && next.Scheme == "" &&
		(next.Path == Path || strings.HasPrefix(next.Path, Path+"/")) {
		target = next.RequestURI()
	}
	v.setDone(url.QueryEscape(message), 60)
	v.answered = true
	web.SeeOther(v.w, target)
	return nil
}

// setDone sets the cookie with the message about an act for some seconds. A negative number deletes
// the cookie. The message is not in the address, because then any link could show one.
func (v *visit) setDone(value string, seconds int) {
	http.SetCookie(v.w, &http.Cookie{ //nolint:gosec // Secure if the service is reached by HTTPS
		Name: doneCookie, Value: value, Path: Path, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: strings.HasPrefix(v.pages.PublicBaseURL, "https://"),
	})
}

// takeDone returns the message about the last act, and deletes its cookie. It returns "" if there
// is none.
func (v *visit) takeDone() string {
	cookie, err := v.r.Cookie(doneCookie)
	if err != nil {
		return ""
	}
	v.setDone("", -1)
	message, err := url.QueryUnescape(cookie.Value)
	if err != nil || !utf8.ValidString(message) {
		return ""
	}
	return message
}

// base holds the data that all pages share.
type base struct {
	Title   string
	Tab     string // the current tab of the navigation
	Refresh int    // seconds until the page reloads itself; 0: never

	// Filled in by render.
	Content     any
	Operator    operator.Operator
	Environment models.Environment
	Pauses      []models.Pause
	QueuesPath  string
	Done        string // the message about the last act; "" for none
	Here        string // this page's address, to which its forms come back
	CanLookUp   bool   // this process has a rail
}

// render answers with a page.
func (v *visit) render(status int, name string, b *base, content any) error {
	b.Content, b.Operator, b.Environment = content, v.operator, v.pages.Environment
	b.QueuesPath, b.CanLookUp = v.pages.QueuesPath, v.pages.LookUp != nil
	if v.r.Method == http.MethodGet {
		b.Here = v.r.URL.RequestURI()
	}
	if status == http.StatusOK {
		if b.Refresh == 0 { // a page that reloads itself would take the message of another tab
			b.Done = v.takeDone()
		}
		var err error
		if b.Pauses, err = v.store().Pauses(v.ctx); err != nil {
			return err
		}
	}
	page, err := web.Execute(templates, name, b)
	if err != nil {
		return fmt.Errorf("ops: %w", err)
	}
	v.answered = true
	web.Write(v.w, status, page)
	return nil
}

// show answers with a page and the status 200.
func (v *visit) show(name string, b *base, content any) error {
	return v.render(http.StatusOK, name, b, content)
}

// problem is the page of an error.
type problem struct {
	Title, Message string
	TraceID        models.TraceID
}

// fail answers with the page of an error.
func (v *visit) fail(err error) {
	status, p := problemOf(err)
	p.TraceID = v.trace
	if status >= http.StatusInternalServerError {
		v.pages.Log.ErrorContext(v.ctx, "operators' page failed",
			"path", v.r.URL.Path, "traceId", v.trace, "error", err)
	}
	if err := v.render(status, "problem", &base{Title: p.Title}, p); err != nil {
		v.pages.Log.ErrorContext(v.ctx, "render a problem of the operators' pages", "error", err)
		http.Error(v.w, "The page cannot be shown.", http.StatusInternalServerError)
	}
}

// problems are the errors with a text of their own.
var problems = []struct {
	err            error
	status         int
	title, message string
}{
	{errNoPage, http.StatusNotFound, "There is no such page", "The address may be mistyped."},
	{errForm, http.StatusForbidden, "The form was not accepted", "It was sent from another site."},
	{
		errRail, http.StatusConflict, "This process has no rail",
		"Set the rail's variables for svc dashboard, or use svc admin debit lookup.",
	},
	{models.ErrRole, http.StatusForbidden, "Your role only looks", "An account with the role act may do this."},
	{
		models.ErrReason, http.StatusBadRequest, "A reason is missing",
		"This act needs a reason of 1 to 128 characters of printable text. The audit log keeps it.",
	},
	{
		models.ErrNotFound, http.StatusNotFound, "Nothing was found",
		"It does not exist, its retention has ended, or it was dealt with.",
	},
	{models.ErrInvalidID, http.StatusBadRequest, "This is not an id", "Copy it as a page or a command shows it."},
	{models.ErrPaused, http.StatusConflict, "It is paused already", "The page of pauses says by whom and why."},
	{models.ErrNotPaused, http.StatusConflict, "It is not paused", "Another operator may have resumed it."},
	{
		models.ErrNotPausable, http.StatusBadRequest, "This queue cannot be paused",
		"Sweeps settle rows at their deadlines.",
	},
	{
		models.ErrNotBlocked, http.StatusConflict, "The endpoint is not blocked",
		"It is enabled, and its breaker holds no event back.",
	},
	{
		models.ErrNoWebhookEndpoint, http.StatusNotFound, "There is no such endpoint",
		"The partner may have removed it.",
	},
	{
		context.DeadlineExceeded, http.StatusServiceUnavailable, "The page took too long",
		"Whether an act took effect is unknown: look before you repeat it.",
	},
	{
		models.ErrUnavailable, http.StatusServiceUnavailable, "The database is not available",
		"Whether an act took effect is unknown: look before you repeat it.",
	},
}

// problemOf returns the status and the page of an error.
func problemOf(err error) (int, problem) {
	for _, p := range problems {
		if errors.Is(err, p.err) {
			return p.status, problem{Title: p.title, Message: p.message}
		}
	}
	var input inputError
	if errors.As(err, &input) {
		return http.StatusBadRequest, problem{Title: "A field is not valid", Message: string(input)}
	}
	return http.StatusInternalServerError, problem{Title: "Something went wrong", Message: "The log has the error."}
}

// recover turns a panic into the page of an unknown error.
func (v *visit) recover() {
	p := recover()
	if p == nil {
		return
	}
	v.pages.Log.ErrorContext(v.ctx, "panic in the operators' pages",
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if !v.answered {
		v.fail(fmt.Errorf("ops: panic: %v", p))
	}
}
