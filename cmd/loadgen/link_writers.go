package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/jobs"
	"partnerbilling/models"
)

// linkWriters is the number of concurrent writers of customer links.
const linkWriters = 16

// whileWriting has linkWriters goroutines write customer links of a Site for the duration, with a
// sweep beside them. It also calls do meanwhile, unless do is nil. It returns the number of
// invitations. inviteOnly is explained at writeLinks.
func (b *bench) whileWriting(
	ctx context.Context, site models.SiteID, inviteOnly bool, duration time.Duration, do func(context.Context) error,
) (invited int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	made := make([]int, linkWriters)
	for w := range linkWriters {
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

// sweepLinks runs the sweep of customer links at its interval, as a worker does, until the context
// ends.
func (b *bench) sweepLinks(ctx context.Context) error {
	sweep := jobs.ExpireInvitations(b.store)
	err := every(ctx, jobs.Recurring[models.TaskExpireInvitations], func() error {
		return sweep.Run(ctx, models.Task{})
	})
	return ignoreAfterEnd(ctx, err)
}

// writeLinks invites customers of a Site until the context ends. Unless inviteOnly is set, every
// second customer also signs up, and every fifth link is revoked. It returns the number of
// invitations.
func (b *bench) writeLinks(ctx context.Context, site models.SiteID, inviteOnly bool) (int, error) {
	name := rand.Text()
	for n := 0; ; n++ {
		invitation := models.NewInvitation{SiteID: site, CustomerReference: fmt.Sprint(name, n)}
		link, _, err := b.store.CreateInvitation(ctx, invitation, nil)
		if err == nil && !inviteOnly && n%2 == 0 {
			_, err = b.store.CompleteLink(ctx, link.ID, models.Party{CustomerID: "customer", AgreementID: "agreement"})
		}
		if err == nil && !inviteOnly && n%5 == 0 {
			_, err = b.store.RevokeLink(ctx, link.ID)
		}
		if err != nil || ctx.Err() != nil {
			return n, ignoreAfterEnd(ctx, err)
		}
	}
}

// ignoreAfterEnd returns nil if the context has ended, and err otherwise.
func ignoreAfterEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of the context caused the error
	}
	return err
}
