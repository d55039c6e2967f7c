package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
	"partnerbilling/models/postgres/explain"
)

func listCommand(out io.Writer) *cobra.Command {
	l := list{bench: bench{out: out}}
	cmd := &cobra.Command{
		Use: "list", Args: cobra.NoArgs,
		Short: "Measure the customer list of a large Site against a small one, and its totals during invitations",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(l.run(cmd.Context()), l.close())
		},
	}
	cmd.Flags().IntVar(&l.few, "few", 10_000, "links of the small Site")
	cmd.Flags().IntVar(&l.links, "links", 10_000_000, "links of the large Site")
	cmd.Flags().IntVar(&l.reads, "reads", 100, "number of reads of each page")
	cmd.Flags().DurationVar(&l.writing, "writing", 10*time.Second,
		"duration of the verification of totals while links are written")
	cmd.Flags().BoolVar(&l.json, "json", false, "print JSON")
	return cmd
}

// list measures whether pages of the customer list are slower for a large Site than for a small
// one. It also checks the exact totals while links are written. It reads through the store: the API
// would add a cost that does not depend on the number of customers.
type list struct {
	bench
	few, links, reads int           // links of the small and of the large Site; reads of each page
	writing           time.Duration // of the check of totals
	recount           *series       // time to recount all links of a Site; each Site has its own
}

// listCell is one page of the list with one combination of filters.
type listCell struct {
	name   string
	query  models.LinkQuery
	p50    float64 // ms
	blocks float64 // that Postgres reads, from the buffers or the disk
}

// listPages lists the names of the measured pages.
var listPages = []string{"first", "middle", "last"}

// cells returns all pages with all combinations of filters, of a Site whose newest link was invited
// at now. The cells of each combination are in the order of listPages.
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
				q := models.LinkQuery{
					SiteID: site, State: state, InvitedFrom: r.from, InvitedTo: r.to, Limit: 50,
					Direction: models.Forward,
				}
				switch page {
				case "middle":
					q.At.At = *at(50)
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
	small := *l // in a database of its own, so that its tables and indexes are small
	var err error
	if small.bench, err = l.beside(ctx); err != nil {
		return err
	}
	defer func() { _ = small.disconnect() }()
	small.recount, l.recount = newRecountSeries(l.few), newRecountSeries(l.links)
	_, few, err := small.seedCells(ctx, l.few)
	if err != nil {
		return err
	}
	site, many, err := l.seedCells(ctx, l.links)
	if err == nil {
		err = l.measure(ctx, []listReader{{small.store, few}, {l.store, many}})
	}
	if err != nil {
		return err
	}
	counts, equal, err := l.verifyTotals(ctx, site, many)
	if err != nil {
		return err
	}
	all := []*series{small.recount, l.recount}
	all = append(all, summary(fmt.Sprint("of ", l.few, " links"), few)...)
	all = append(all, summary(fmt.Sprint("of ", l.links, " links"), many)...)
	times, blocks := compare(few, many)
	totals := ratio{Name: "totals while 16 write: equal to count(*)", Value: equal, Target: 1}
	return l.report(append(all, counts), slices.Concat(times, blocks, []ratio{totals}))
}

func newRecountSeries(links int) *series {
	return &series{Name: fmt.Sprint("recount of all ", links, " links"), Unit: "s"}
}

// seedCells creates a Site with links, and returns its cells. It fills in the blocks of each cell.
func (l *list) seedCells(ctx context.Context, links int) (models.SiteID, []*listCell, error) {
	site, err := l.seedList(ctx, links)
	if err != nil {
		return site, nil, err
	}
	newest, err := l.store.ListLinks(ctx, models.LinkQuery{SiteID: site, Limit: 1})
	if err != nil {
		return site, nil, err
	}
	cells := l.cells(site, newest.Items[0].InvitedAt)
	for _, c := range cells {
		if c.blocks, err = l.blocks(ctx, c.query); err != nil {
			return site, nil, err
		}
	}
	return site, cells, nil
}

// listReader is the store of a Site and the cells to read from it.
type listReader struct {
	store *models.Store
	cells []*listCell
}

// measure fills in the p50 of all cells. It reads the cells of all Sites in rotation, so that a
// drift of the machine affects all.
func (l *list) measure(ctx context.Context, readers []listReader) error {
	took := make(map[*listCell]*series)
	for range l.reads {
		for i := range readers[0].cells {
			for _, r := range readers {
				c := r.cells[i]
				began := time.Now()
				page, err := r.store.ListLinks(ctx, c.query)
				if err == nil && len(page.Items) == 0 {
					err = errors.New("the page is empty")
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

// blocks returns the number of blocks that Postgres reads for a page.
func (l *list) blocks(ctx context.Context, q models.LinkQuery) (float64, error) {
	list, args := q.Statement()
	plan, err := explain.Run(ctx, l.store.DB().DB, list, args)
	return float64(plan.Blocks()), err
}

// summary returns two series for each page: the p50 and the blocks, with one value for each
// combination of filters.
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

// compare compares each cell of the large Site with that of the small one. For times and for
// blocks, it returns the median and the worst ratio.
func compare(few, many []*listCell) (times, blocks []ratio) {
	var byTime, byBlocks []ratio
	for i := range many {
		byTime = append(byTime, ratio{
			Name: "p50, worst: " + many[i].name, Value: many[i].p50 / few[i].p50, Target: -1.2,
		})
		byBlocks = append(byBlocks, ratio{
			Name: "blocks, worst: " + many[i].name, Value: many[i].blocks / few[i].blocks, Target: -1.5,
		})
	}
	ends := func(all []ratio, median string) []ratio {
		slices.SortFunc(all, func(a, b ratio) int {
			switch {
			case a.isNumber() == b.isNumber():
				return cmp.Compare(a.Value, b.Value)
			case a.isNumber():
				return -1
			default: // a division by 0 is the worst
				return 1
			}
		})
		middle := all[len(all)/2]
		middle.Name = median
		return []ratio{middle, all[len(all)-1]}
	}
	return ends(byTime, "p50, median of all pages and filters"), ends(byBlocks,
		"blocks, median of all pages and filters")
}

// verifyTotals compares the totals of random cells with count(*) in the same snapshot, while links
// are written and swept. It returns the durations of the counts, and the fraction of correct
// totals.
func (l *list) verifyTotals(ctx context.Context, site models.SiteID, cells []*listCell) (*series, float64, error) {
	counts := &series{Name: "count(*) in place of a total", Unit: "ms"}
	correct := 0
	_, err := l.whileWriting(ctx, site, false, l.writing, func(ctx context.Context) error {
		for len(counts.Values) == 0 || ctx.Err() == nil {
			c := cells[rand.IntN(len(cells))]
			began := time.Now()
			// A count that has begun is completed.
			total, counted, err := l.store.CompareTotals(context.WithoutCancel(ctx), c.query)
			if err != nil {
				return err
			}
			counts.add(time.Since(began).Seconds() * 1000)
			if total == counted {
				correct++
			}
		}
		return nil
	})
	return counts, float64(correct) / float64(len(counts.Values)), err
}
