package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/models"
)

// batchClient submits batches of one Site over HTTP. Callers prepare the JSON with batchBody, so
// that measurements contain little work of the partner's side.
type batchClient struct {
	client *loadClient
	url    string
	token  string
}

// batchBody returns the JSON of a batch. Its rows debit 100 minor units each, from the Site's
// customers in rotation.
func (p *partners) batchBody(reference string, rows int) string {
	batch := client.Batch{BatchReference: reference, Rows: make([]client.Row, rows)}
	for i := range batch.Rows {
		batch.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(i % partnerCustomers), RowReference: fmt.Sprint(i), Amount: 100,
		}
	}
	text, _ := json.Marshal(batch) //nolint:errchkjson // strings and integers
	return string(text)
}

// newBatchClients creates a client for each Site of p, to the service at the base URL. They share
// up to conns connections.
func (p *partners) newBatchClients(ctx context.Context, base string, conns int) ([]*batchClient, error) {
	shared, clients := newLoadClient(conns), make([]*batchClient, len(p.sites))
	for i, site := range p.sites {
		var err error
		if clients[i], err = p.newBatchClient(ctx, shared, base, site); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

// submitThrough submits rows over HTTP, in batches of at most batchRows, through the clients in
// rotation.
func (p *partners) submitThrough(ctx context.Context, clients []*batchClient, rows, batchRows int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(submitConcurrency)
	for rows > 0 {
		n := min(rows, batchRows)
		rows -= n
		p.submitted++
		body, through := p.batchBody(fmt.Sprint(p.submitted), n), clients[p.submitted%len(clients)]
		group.Go(func() error {
			_, err := through.submit(ctx, body)
			return err
		})
	}
	return group.Wait()
}

// newBatchClient creates an API client of the Site's organisation, and fetches an access token. It
// returns a batchClient with that token, which calls the service at the base URL through c.
func (b *bench) newBatchClient(
	ctx context.Context, c *loadClient, base string, site models.Site,
) (*batchClient, error) {
	id, secret, err := b.newClient(ctx, site)
	if err != nil {
		return nil, err
	}
	token, err := c.fetchToken(ctx, tokenCall(base, id, secret))
	return &batchClient{c, fmt.Sprint(base, "/billing/sites/", site.ID, "/batches"), token}, err
}

// tokenCall returns the call by which the API client with the id and secret requests an access
// token from the service at the base URL.
func tokenCall(base, id, secret string) *call {
	return &call{
		url: base + "/oauth2/token", authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret)),
		body: "grant_type=client_credentials", contentType: "application/x-www-form-urlencoded", want: http.StatusOK,
	}
}

// fetchToken makes a tokenCall and returns the token. It repeats a call that is answered with 503.
func (c *loadClient) fetchToken(ctx context.Context, call *call) (string, error) {
	var granted struct {
		Token string `json:"access_token"`
	}
	err := retryRefused(ctx, func() error {
		return c.send(call, func(status int, body []byte) error {
			if err := call.check(status, body); err != nil {
				return err
			}
			return json.Unmarshal(body, &granted)
		})
	})
	return granted.Token, err
}

// submit posts a batch and returns the time until it was accepted. It repeats a call that is
// answered with 503; the time includes these repetitions.
func (c *batchClient) submit(ctx context.Context, body string) (time.Duration, error) {
	post := &call{url: c.url, authorization: bearer(c.token), body: body, want: http.StatusAccepted}
	began := time.Now()
	err := retryRefused(ctx, func() error { return c.client.do(post) })
	return time.Since(began), err
}
