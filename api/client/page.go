package client

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"strconv"
)

// page is a page of a list.
type page[T any] struct {
	Items       []T    `json:"items"`
	TotalItems  int    `json:"totalItems"`  // on all pages; only of lists that count
	TotalAmount int64  `json:"totalAmount"` // on all pages, in minor units; only of movements
	NextHref    string `json:"nextHref"`    // "" on the last page
}

// fetch returns the page at a path with its query.
func fetch[T any](ctx context.Context, c *Client, href string) (page[T], error) {
	var out page[T]
	_, err := c.do(ctx, request{method: http.MethodGet, path: href, repeatable: true}, &out)
	return out, err
}

// list iterates over all items of a list, from the page at href on. It fetches a page when the
// previous one is used up. After an error it ends.
func list[T any](ctx context.Context, c *Client, href string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next := href; ; {
			current, err := fetch[T](ctx, c, next)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range current.Items {
				if !yield(item, nil) {
					return
				}
			}
			if current.NextHref == "" {
				return
			}
			if next, err = c.LinkPath(current.NextHref); err != nil {
				var none T
				yield(none, err)
				return
			}
		}
	}
}

// query encodes the parameters that are neither "" nor 0, with a leading question mark if there are
// any.
func query(texts map[string]string, numbers map[string]int64) string {
	values := maps.Clone(texts)
	if values == nil {
		values = map[string]string{}
	}
	for name, n := range numbers {
		if n != 0 {
			values[name] = strconv.FormatInt(n, 10)
		}
	}
	return Query(values)
}
