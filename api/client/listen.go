package client

import (
	"context"
	"iter"
)

// Delivery is a webhook as an endpoint would receive it.
type Delivery struct {
	ID      string            `json:"-"` // for a later ListenFrom
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Listen streams the organisation's webhooks for development, without an endpoint. It reconnects
// when the stream breaks, and continues after the last delivery. It ends with an error when ctx
// ends, when the service refuses the stream, or when a delivery cannot be decoded.
func (c *Client) Listen(ctx context.Context) iter.Seq2[Delivery, error] { return c.ListenFrom(ctx, "") }

// ListenFrom streams as Listen does, but begins after the delivery with the id lastID. That
// delivery must be at most 24 hours old. "" begins now.
func (c *Client) ListenFrom(ctx context.Context, lastID string) iter.Seq2[Delivery, error] {
	return c.ListenWith(ctx, ListenOptions{LastID: lastID})
}

// ListenOptions configures ListenWith. Its functions are called in the goroutine of the iteration,
// and may be nil.
type ListenOptions struct {
	LastID string // continue after this delivery or position of the last 24 hours; "": from now
	// Connected is called when a connection begins, with the position of the stream. A later call
	// with that position as LastID continues there.
	Connected func(position string)
	// Broken is called when a connection has ended (err is nil) or failed. The client then connects
	// again, unless the service has refused the stream.
	Broken func(err error)
}

// ListenWith streams as Listen does, with options.
func (c *Client) ListenWith(ctx context.Context, options ListenOptions) iter.Seq2[Delivery, error] {
	return follow(ctx, c, "/webhooks/listen", options, func(d *Delivery, id string) { d.ID = id })
}
