package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// pinned is a bench with an API, and with a CPU that is reserved for this process, the load
// generator. The load thus does not slow down when the service is busy.
type pinned struct {
	bench
	pin bool // the flag --pin-cpus

	cpus    []int // all CPUs of this process before it was pinned; nil if it is not
	api     *process
	address string // host and port of the API
}

// addPinFlag adds the flag that decides whether to pin.
func (p *pinned) addPinFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.pin, "pin-cpus", true,
		"reserve a CPU for the generator, and all others for the service and its databases (Linux)")
}

// startPinned starts the API and its servers on all CPUs but the last, and then moves this process
// to the last one. It pins nothing without the flag, or if there is only one CPU. env holds further
// environment variables of the API. startPinned returns the base URL of the API.
func (p *pinned) startPinned(ctx context.Context, env ...string) (base string, err error) {
	cpus, err := ownCPUs()
	if err != nil {
		return "", err
	}
	if p.pin && len(cpus) > 1 {
		p.cpus = cpus
		if err := pinSelf(cpus[:len(cpus)-1]); err != nil {
			return "", err
		}
	}
	if err := p.open(ctx); err != nil {
		return "", err
	}
	if p.api, base, err = p.startAPI(append(env, "SVC_RATE_LIMIT=100000", "SVC_LOG_LEVEL=INFO")...); err != nil {
		return "", err
	}
	p.address = strings.TrimPrefix(base, "http://")
	if p.cpus != nil {
		return base, pinSelf(cpus[len(cpus)-1:])
	}
	return base, nil
}

// newCaller creates an organisation with a Site. It returns a client of the Site, and a call that
// creates a payment intent of 1250 minor units.
func (b *bench) newCaller(ctx context.Context, base string) (*batchClient, *call, error) {
	sites, err := b.organisation(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	p, err := b.newBatchClient(ctx, newLoadClient(1), base, sites[0])
	if err != nil {
		return nil, nil, err
	}
	return p, &call{
		url:           fmt.Sprint(base, "/checkout/", sites[0].ID, "/payment-intent"),
		authorization: bearer(p.token), body: `{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`,
	}, nil
}

// close stops the API and the servers, and gives this process all its CPUs back.
func (p *pinned) close() error {
	err := errors.Join(terminateAll(p.api), p.bench.close())
	if p.cpus != nil {
		err = errors.Join(err, pinSelf(p.cpus))
	}
	return err
}
