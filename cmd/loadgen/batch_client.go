package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
)

// batchClient submits batches whose JSON is ready, so that measurements contain little work of the
// partner's side.
type batchClient struct {
	http  *http.Client
	url   string
	token string
}

// newHTTPClient returns an HTTP client that keeps up to conns connections.
func newHTTPClient(conns int) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: conns}}
}

// batchBody returns the JSON of a batch with rows for the partner's customers in rotation.
func (p *partners) batchBody(reference string, rows int) []byte {
	batch := client.Batch{BatchReference: reference, Rows: make([]client.Row, rows)}
	for i := range batch.Rows {
		batch.Rows[i] = client.Row{
			CustomerReference: fmt.Sprint(i % partnerCustomers), RowReference: fmt.Sprint(i), Amount: 100,
		}
	}
	text, _ := json.Marshal(batch) //nolint:errchkjson // strings and integers
	return text
}

// newBatchClients creates a client for each Site. They share up to conns connections.
func (p *partners) newBatchClients(ctx context.Context, base string, conns int) ([]*batchClient, error) {
	httpClient, clients := newHTTPClient(conns), make([]*batchClient, len(p.sites))
	for i, site := range p.sites {
		var err error
		if clients[i], err = p.newBatchClient(ctx, httpClient, base, site); err != nil {
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

// authorizeBatchClient fetches an access token and returns a client with it.
func authorizeBatchClient(
	ctx context.Context, httpClient *http.Client, base, clientID, secret, site string,
) (*batchClient, error) {
	p := &batchClient{http: httpClient, url: base + "/billing/sites/" + site + "/batches"}
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/oauth2/token", form)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(clientID, secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer []byte
	err = retryRefused(ctx, func() (err error) {
		answer, err = p.exchange(req, http.StatusOK)
		return err
	})
	if err != nil {
		return nil, err
	}
	var granted struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(answer, &granted); err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	p.token = granted.Token
	return p, nil
}

// submit posts a batch and returns the time until it was accepted, with the waits after 503.
func (p *batchClient) submit(ctx context.Context, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	err = retryRefused(ctx, func() error {
		_, err := p.exchange(req, http.StatusAccepted)
		return err
	})
	return time.Since(began), err
}

// exchange makes a request and returns the body. It returns an error unless the answer has the
// status: errRefused for a 503. exchange may be called again with the same request.
func (p *batchClient) exchange(req *http.Request, want int) ([]byte, error) {
	var err error
	if req.Body, err = req.GetBody(); err != nil {
		return nil, err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil || resp.StatusCode == want:
	case resp.StatusCode == http.StatusServiceUnavailable:
		err = fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, errRefused)
	default:
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, body)
	}
	return body, err
}
