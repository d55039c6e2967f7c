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

	"partnerbilling/api/client"
)

// poster submits batches whose JSON is ready, so that a measurement has no more of the partner's side in it than it must.
type poster struct {
	http  *http.Client
	url   string
	token string
}

// newWeb makes an HTTP client that keeps its connections.
func newWeb(atOnce int) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
}

// batchBody is the JSON of a batch of rows for the partner's customers, who take turns.
func (p *partners) batchBody(reference string, rows int) []byte {
	batch := client.Batch{BatchReference: reference, Rows: make([]client.Row, rows)}
	for i := range batch.Rows {
		batch.Rows[i] = client.Row{CustomerReference: fmt.Sprint(i % partnerCustomers), RowReference: fmt.Sprint(i), Amount: 100}
	}
	text, _ := json.Marshal(batch) //nolint:errchkjson // strings and integers
	return text
}

// newPoster fetches an access token.
func newPoster(ctx context.Context, web *http.Client, base, clientID, secret, site string) (*poster, error) {
	p := &poster{http: web, url: base + "/billing/sites/" + site + "/batches"}
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/oauth2/token", form)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(clientID, secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.exchange(req, http.StatusOK)
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

// submit posts a batch and returns how long the answer took.
func (p *poster) submit(ctx context.Context, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	_, err = p.exchange(req, http.StatusAccepted)
	return time.Since(began), err
}

func (p *poster) exchange(req *http.Request, want int) ([]byte, error) {
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, body)
	}
	return body, err
}
