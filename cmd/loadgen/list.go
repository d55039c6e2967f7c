package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/jobs"
	"partnerbilling/models"
)

func listCommand(out io.Writer) *cobra.Command {
	l := list{bench: bench{out: out}, recount: &series{Name: "recount of all links", Unit: "s"}}
	cmd := &cobra.Command{
		Use: "list", Args: cobra.NoArgs,
		Short: "Measure the customer list of a Site with many customers against one with few, and its totals while customers are invited",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(l.run(cmd.Context()), l.close())
		},
	}
	cmd.Flags().IntVar(&l.few, "few", 10_000, "links of the Site that is compared with")
	cmd.Flags().IntVar(&l.links, "links", 10_000_000, "links of the Site that is measured")
	cmd.Flags().IntVar(&l.reads, "reads", 100, "reads of each page")
	cmd.Flags().DurationVar(&l.writing, "writing", 10*time.Second, "how long links are written while totals are proved")
	cmd.Flags().BoolVar(&l.json, "json", false, "print JSON")
	return cmd
}

// list measures pages of the customer list, read through the store: what the API adds does not know how many customers there are.
type list struct {
	bench
	few, links, reads int
	writing           time.Duration
	recount           *series
}

// listWriters is how many write links at once.
const listWriters = 16

// listCell is one page of the list by one combination of filters.
type listCell struct {
	name   string
	query  models.LinkQuery
	p50    float64 // ms
	blocks float64 // read of Postgres's buffers or of the disk
}

// listPages are the pages that are measured.
var listPages = []string{"first", "middle", "last"}

// cells are all pages by all combinations of filters, of a Site whose newest link was invited at now.
func (l *list) cells(site models.SiteID, now models.Millis) []*listCell {
	at := func(part int) *models.Millis {
		m := now.Add(-listSpan / 100 * time.Duration(100-part)).Add(12_345_678)
		return &m
	}
	var cells []*listCell
	for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
		for _, r := range []struct {
			name     string
			from, to *models.Millis
		}{{"", nil, nil}, {" from", at(20), nil}, {" to", nil, at(80)}, {" from to", at(20), at(80)}} {
			for _, page := range listPages {
				q := models.LinkQuery{SiteID: site, State: state, InvitedFrom: r.from, InvitedTo: r.to, Limit: 50, Direction: models.Forward}
				switch page {
				case "middle":
					q.From.InvitedAt = *at(50)
				case "last":
					q.Direction = models.Backward
				}
				cells = append(cells, &listCell{name: fmt.Sprintf("%s page %s%s", page, state, r.name), query: q})
			}
		}
	}
	return cells
}

func (l *list) run(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	little, err := l.littleOne(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = little.store.Close() }()
	_, few, err := little.seedCells(ctx, l.few)
	if err != nil {
		return err
	}
	site, many, err := l.seedCells(ctx, l.links)
	if err == nil {
		err = l.measure(ctx, []listReader{{little.store, few}, {l.store, many}})
	}
	if err != nil {
		return err
	}
	proofs, equal, err := l.prove(ctx, site, many)
	if err != nil {
		return err
	}
	all := []*series{l.recount}
	all = append(all, summary(fmt.Sprint("of ", l.few, " links"), few)...)
	all = append(all, summary(fmt.Sprint("of ", l.links, " links"), many)...)
	time, blocks := compare(few, many)
	return l.report(append(all, proofs), append(append(time, blocks...), ratio{Name: "totals while 16 write: equal to count(*)", Value: equal, Target: 1}))
}

// littleOne is the same with a database of its own on the same server: the Site that is compared with has tables and indexes of its own
// size.
func (l *list) littleOne(ctx context.Context) (*list, error) {
	address, err := url.Parse(l.local.DatabaseURL)
	if err != nil {
		return nil, err
	}
	const name = "little"
	if err := l.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	address.Path = "/" + name
	little := *l
	if little.store, err = openStore(ctx, address.String(), 2); err != nil {
		return nil, err
	}
	return &little, nil
}

// seedCells fills a Site and returns what is to be measured of it.
func (l *list) seedCells(ctx context.Context, links int) (models.SiteID, []*listCell, error) {
	site, err := l.seedList(ctx, links)
	if err != nil {
		return site, nil, err
	}
	newest, err := l.store.ListLinks(ctx, models.LinkQuery{SiteID: site, Limit: 1})
	if err != nil {
		return site, nil, err
	}
	cells := l.cells(site, newest.Links[0].InvitedAt)
	for _, c := range cells {
		if c.blocks, err = l.blocks(ctx, c.query); err != nil {
			return site, nil, err
		}
	}
	return site, cells, nil
}

// listReader is where cells are read.
type listReader struct {
	store *models.Store
	cells []*listCell
}

// measure reads all pages of all Sites in turns, so that a drift of the machine meets all alike.
func (l *list) measure(ctx context.Context, readers []listReader) error {
	took := make(map[*listCell]*series)
	for range l.reads {
		for i := range readers[0].cells {
			for _, r := range readers {
				c := r.cells[i]
				began := time.Now()
				page, err := r.store.ListLinks(ctx, c.query)
				if err == nil && len(page.Links) == 0 {
					err = errors.New("nothing is on the page")
				}
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if took[c] == nil {
					took[c] = &series{}
				}
				took[c].add(time.Since(began).Seconds() * 1000)
			}
		}
	}
	for c, all := range took {
		c.p50 = all.median()
	}
	return nil
}

// blocks is how many blocks Postgres reads for a page.
func (l *list) blocks(ctx context.Context, q models.LinkQuery) (float64, error) {
	plan, err := l.store.ExplainListLinks(ctx, q)
	if err != nil {
		return 0, err
	}
	var explained []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(plan, &explained); err != nil || len(explained) != 1 {
		return 0, fmt.Errorf("explain: %s: %w", plan, err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read, nil
}

// summary is a series for each page, with a value for each combination of filters.
func summary(of string, cells []*listCell) []*series {
	var all []*series
	for i, page := range listPages {
		p50 := &series{Name: page + " page " + of + ", p50 by filters", Unit: "ms"}
		blocks := &series{Name: page + " page " + of + ", blocks by filters", Unit: "blocks"}
		for j := i; j < len(cells); j += len(listPages) {
			p50.add(cells[j].p50)
			blocks.add(cells[j].blocks)
		}
		all = append(all, p50, blocks)
	}
	return all
}

// compare holds each page of the many against that of the few: the worst of all, and their median.
func compare(few, many []*listCell) (times, blocks []ratio) {
	var byTime, byBlocks []ratio
	for i := range many {
		byTime = append(byTime, ratio{Name: "p50, worst: " + many[i].name, Value: many[i].p50 / few[i].p50, Target: -1.2})
		byBlocks = append(byBlocks, ratio{Name: "blocks, worst: " + many[i].name, Value: many[i].blocks / few[i].blocks, Target: -1.5})
	}
	ends := func(all []ratio, median string) []ratio {
		slices.SortFunc(all, func(a, b ratio) int { return int(1e6 * (a.Value - b.Value)) })
		middle := all[len(all)/2]
		middle.Name = median
		return []ratio{middle, all[len(all)-1]}
	}
	return ends(byTime, "p50, median of all pages and filters"), ends(byBlocks, "blocks, median of all pages and filters")
}

// prove compares totals with what counting out gives in the same snapshot, while links are written and swept. It returns how long a
// proof took, and the part of the totals that were right.
func (l *list) prove(ctx context.Context, site models.SiteID, cells []*listCell) (*series, float64, error) {
	proofs := &series{Name: "counting out in place of a total", Unit: "ms"}
	right := 0
	_, err := l.whileWriting(ctx, site, false, l.writing, func(ctx context.Context) error {
		for len(proofs.Values) == 0 || ctx.Err() == nil {
			c := cells[rand.IntN(len(cells))]
			began := time.Now()
			total, counted, err := l.store.ProveTotal(context.WithoutCancel(ctx), c.query) // what has begun counts
			if err != nil {
				return err
			}
			proofs.add(time.Since(began).Seconds() * 1000)
			if total == counted {
				right++
			}
		}
		return nil
	})
	return proofs, float64(right) / float64(len(proofs.Values)), err
}

// whileWriting does something, if there is something, while 16 write links of a Site and a worker's sweep goes on beside them, for
// a time. It returns how many invitations they made.
func (b *bench) whileWriting(
	ctx context.Context, site models.SiteID, inviteOnly bool, d time.Duration, do func(context.Context) error,
) (invited int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	made := make([]int, listWriters)
	for w := range listWriters {
		group.Go(func() (err error) {
			made[w], err = b.writeLinks(ctx, site, inviteOnly)
			return err
		})
	}
	group.Go(func() error { return b.sweepLinks(ctx) })
	if do != nil {
		group.Go(func() error { return do(ctx) })
	}
	err = group.Wait()
	for _, n := range made {
		invited += n
	}
	return invited, err
}

// sweepLinks is what a worker does for links beside their writers, as often as a worker does.
func (b *bench) sweepLinks(ctx context.Context) error {
	sweep := jobs.ExpireInvitations(b.store)
	tick := time.NewTicker(jobs.Recurring[models.TaskExpireInvitations])
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := sweep.Run(ctx, models.Task{}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
