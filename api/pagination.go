package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"partnerbilling/api/sealed"
	"partnerbilling/models"
)

// Page sizes of lists.
const (
	defaultPageLimit = 50
	maxPageLimit     = 100
)

// cursorLife is the time for which a pagination link is valid, in service time.
const cursorLife = 24 * time.Hour

// maxCursorSize is the length of the longest accepted cursor, in characters. Even a cursor with the
// longest orderId is shorter.
const maxCursorSize = 2 << 10

// pageQuery selects one page of a list. F is the type of the filter, P that of positions in the
// list. A pagination link contains all fields, in a cursor.
type pageQuery[F, P any] struct {
	Filter    F                `json:"f"`
	Limit     int              `json:"l"`
	Direction models.Direction `json:"d"`
	From      P                `json:"p"`
	IssuedAt  models.Millis    `json:"t"` // when the link was issued; 0 for a first page
}

// paginator seals and opens pagination links. A cursor is encrypted and authenticated, and bound to
// its list, organisation and Site.
type paginator struct {
	keys    *models.Keys
	baseURL string // the public base URL
}

func newPaginator(cfg Config) *paginator { return &paginator{cfg.Keys, cfg.PublicBaseURL} }

// openPage returns the query of the page that a request asks for: the one in its cursor, or that of
// the first page with the filters that read decodes. A refusal of a first page also has the faults
// that the request's query already had.
func openPage[F, P any](
	ctx context.Context, p *paginator, r *Request, read func(*queryReader) F,
) (pageQuery[F, P], error) {
	var q pageQuery[F, P]
	text, ok := r.Query("cursor")
	if !ok {
		in := queryReader{r: r, faults: Error{Faults: r.queryFaults}}
		r.queryFaults = nil
		q.Direction, q.Limit = models.Forward, int(in.integer("limit", 1, maxPageLimit, defaultPageLimit))
		q.Filter = read(&in)
		return q, in.err()
	}
	err := p.open(ctx, r, text, &q)
	if errors.Is(err, sealed.ErrInvalid) {
		return q, refuseLink(r)
	}
	return q, err
}

// checkAge refuses a link that has expired at now, the service time at which the page was read.
func (q *pageQuery[F, P]) checkAge(r *Request, now models.Millis) error {
	if q.IssuedAt != 0 && now >= q.IssuedAt.Add(cursorLife) {
		return refuseLink(r)
	}
	return nil
}

// pageLinks are the links from a page of a list to the next and the previous page. A link is "" if
// there is no such page.
type pageLinks struct {
	NextHref string `json:"nextHref,omitempty"`
	PrevHref string `json:"prevHref,omitempty"`
}

// links returns the links from a page that was read at now. next is the position of the next page,
// prev that of the previous one. Either may be nil. links refuses the request if its own link has
// expired.
func (q pageQuery[F, P]) links(
	ctx context.Context, p *paginator, r *Request, next, prev *P, now models.Millis,
) (links pageLinks, err error) {
	if err = q.checkAge(r, now); err != nil {
		return links, err
	}
	if links.NextHref, err = q.href(ctx, p, r, models.Forward, next, now); err != nil {
		return links, err
	}
	links.PrevHref, err = q.href(ctx, p, r, models.Backward, prev, now)
	return links, err
}

// href returns the link to the page that lies in a direction from a position, "" without a
// position.
func (q pageQuery[F, P]) href(
	ctx context.Context, p *paginator, r *Request, d models.Direction, from *P, now models.Millis,
) (string, error) {
	if from == nil {
		return "", nil
	}
	q.Direction, q.From, q.IssuedAt = d, *from, now
	text, err := p.seal(ctx, r, q)
	if err != nil {
		return "", err
	}
	return p.baseURL + r.canonicalPath() + "?cursor=" + text, nil
}

// refuseLink returns the refusal of an invalid pagination link, whatever is wrong with it.
func refuseLink(r *Request) error {
	return Refuse(inArea(r.route.Area, "invalid-pagination-link"), "nextHref")
}

// seal encodes a query as a cursor for the list and the caller of a request.
func (p *paginator) seal(ctx context.Context, r *Request, query any) (string, error) {
	plain, err := json.Marshal(query)
	if err != nil {
		return "", fmt.Errorf("api: seal a cursor: %w", err)
	}
	return p.box().Seal(ctx, plain, cursorScope(r))
}

// open decodes a cursor into query. It returns sealed.ErrInvalid unless seal made the cursor for
// the same list and caller.
func (p *paginator) open(ctx context.Context, r *Request, text string, query any) error {
	plain, err := p.box().Open(ctx, text, cursorScope(r))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(plain, query); err != nil {
		return fmt.Errorf("api: open a cursor: %w", err)
	}
	return nil
}

func (p *paginator) box() sealed.Box {
	return sealed.Box{Keys: p.keys, Label: "pagination cursor", MaxSize: maxCursorSize}
}

// cursorScope returns the additional data that a cursor is bound to: its list, organisation and
// Site.
func cursorScope(r *Request) []byte {
	return fmt.Append(nil, r.route.Path, "\x00", r.Principal.OrganisationID, "\x00", r.Site.ID)
}

// queryReader decodes the parameters of a query, and collects every fault.
type queryReader struct {
	r      *Request
	faults Error
}

// fault adds the faults of a refusal. It ignores other errors.
func (in *queryReader) fault(err error) {
	var e *Error
	if errors.As(err, &e) {
		in.faults.Faults = append(in.faults.Faults, e.Faults...)
	}
}

// err returns the refusal with all faults, nil without any.
func (in *queryReader) err() error {
	if len(in.faults.Faults) == 0 {
		return nil
	}
	return &in.faults
}

// integer decodes an integer from minimum to maximum. otherwise is the default value.
func (in *queryReader) integer(name string, minimum, maximum, otherwise int64) int64 {
	n, ok, err := in.r.QueryInt(name, minimum, maximum)
	in.fault(err)
	if !ok {
		return otherwise
	}
	return n
}

// millis decodes a point in time in ms of Unix time, nil if it is absent or invalid. Every 64-bit
// integer is valid, even if it lies outside of the times of all data.
func (in *queryReader) millis(name string) *models.Millis {
	n, ok, err := in.r.QueryInt(name, math.MinInt64, math.MaxInt64)
	in.fault(err)
	if !ok || err != nil {
		return nil
	}
	at := models.Millis(n)
	return &at
}

// text decodes a parameter that check accepts. It returns "" if the parameter is absent or refused.
func (in *queryReader) text(name string, check func(string) error) string {
	text, ok := in.r.Query(name)
	if !ok {
		return ""
	}
	if err := check(text); err != nil {
		in.fault(in.r.RefuseQuery(name, err.Error()))
		return ""
	}
	return text
}

// oneOf decodes a parameter that must have one of the values. It returns "" if the parameter is
// absent or refused.
func oneOf[T ~string](in *queryReader, name string, values []T) T {
	return T(in.text(name, isOneOf(values)))
}
