package ops

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

//go:embed *.html
var files embed.FS

//go:embed ops.css
var ownStyle string

var style = web.NewStyle(Path, web.Palette+web.Tables+ownStyle)

// pageHeaders returns the headers of every answer. A page may load its style and send its forms,
// and nothing else.
func pageHeaders() http.Header {
	h := web.Headers()
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	return h
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"stylePath": func() string { return style.Path },
	"money":     func(a models.Amount, currency string) string { return web.Money(int64(a), currency) },
	"time": func(at models.Millis) template.HTML {
		return web.TimeElement(at.Time(), "2006-01-02 15:04:05")
	},
	"age":    age,
	"link":   web.WithQuery,
	"plural": web.Plural,
	"tone":   func(state any) string { return web.Tone(state, "still") },
	"tabOf": func(b *base, name, path, label string) web.Tab {
		return web.Tab{Path: path, Label: label, Current: b.Tab == name}
	},
	"capped":    capped,
	"text":      func(raw []byte) string { return string(bytes.ToValidUTF8(raw, []byte("\uFFFD"))) },
	"json":      indented,
	"form":      func(b *base, fields ...string) formData { return formData{b, fields} },
	"pairs":     pairs,
	"hasID":     func(id identifier) bool { return !id.IsZero() },
	"idOrEmpty": idOrEmpty,
	"alertsOf": func(b *base, alerts []models.Alert, names map[models.OrganisationID]string) alertList {
		return alertList{b, alerts, names}
	},
	"hitPath":  hitPath,
	"openRows": func(c models.BatchCounts) int { return c.Pending + c.InProgress },
}).ParseFS(files, "*.html"))

// identifier is an id of any type.
type identifier interface {
	IsZero() bool
	String() string
}

// idOrEmpty returns the text of an id, "" for the zero id.
func idOrEmpty(id identifier) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// alertList is the data of a list of alerts, each with a form.
type alertList struct {
	Base   *base
	Alerts []models.Alert
	Names  map[models.OrganisationID]string // by id
}

// hitPath returns the address of the page about a hit of a search, "" if no page shows it.
func hitPath(h models.Hit) string {
	switch h.Kind {
	case models.HitOrganisation:
		return web.WithQuery(Path+"/organisation", "id", h.ID)
	case models.HitSite, models.HitClient:
		if h.OrganisationID.IsZero() {
			return ""
		}
		return web.WithQuery(Path+"/organisation", "id", h.OrganisationID)
	case models.HitBatch:
		return web.WithQuery(Path+"/batch", "site", h.SiteID, "ref", h.ID)
	case models.HitPaymentIntent:
		return web.WithQuery(Path+"/payment", "id", h.ID)
	case models.HitWebhookEvent:
		return web.WithQuery(Path+"/event", "organisation", h.OrganisationID, "id", h.ID)
	default: // no page shows a customer
		return ""
	}
}

// formData is the data of a form's hidden fields. Fields alternate names and values.
type formData struct {
	Base   *base
	Fields []string
}

type pair struct{ Name, Value string }

// pairs splits fields, which alternate names and values.
func pairs(fields []string) (all []pair) {
	for i := 0; i+1 < len(fields); i += 2 {
		all = append(all, pair{fields[i], fields[i+1]})
	}
	return all
}

// age formats a duration with its two largest units. It returns a dash for 0 and less.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Minute:
		return d.Round(time.Second / 10).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// capped formats a count that stops at models.MostCounted.
func capped(n int) string {
	if n >= models.MostCounted {
		return strconv.Itoa(models.MostCounted) + "+"
	}
	return strconv.Itoa(n)
}

// indented returns indented JSON. It returns malformed JSON unchanged.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
