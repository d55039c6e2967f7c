package client

import "time"

// CheckText checks the text of a request's body.
func CheckText(body any) error { return (&request{body: body}).checkText() }

// RenewAt returns the time from which the client renews its access token.
func (c *Client) RenewAt() time.Time { return c.renewAt }

// MaxSilence is the time without a byte after which a stream is taken for broken.
const MaxSilence = maxSilence
