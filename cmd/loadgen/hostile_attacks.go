package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"partnerbilling/models"
)

// attack is one way to burden the API. run does it until the context ends.
type attack struct {
	name string
	run  func(ctx context.Context) error
}

const mebibyte = 1 << 20 // bytes

// attackers are partners, each of an organisation of its own, that attack the API together with
// clients without a token. The flags of the command explain the numbers.
type attackers struct {
	Address  string // host and port of the API
	Partners []attackingPartner
	Yielding bool // they get the lowest priority

	Polls, Reads                    float64
	Bodies, Unfinished, Connections int
	Streams                         int
}

// attackingPartner has the URL of its Site's batches and an access token.
type attackingPartner struct{ URL, Token string }

// attacks returns all attacks.
func (a *attackers) attacks() []attack {
	values := `{"batchReference":"b","x":[1` + strings.Repeat(",1", 523_990)
	values += strings.Repeat(" ", mebibyte-2-len(values)) + "]}"
	form := "POST /oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
		"Content-Length: 60000\r\n\r\ngrant_type=" + strings.Repeat("a", 59_000)
	return []attack{
		a.greedy(),
		{fmt.Sprint(a.Bodies, " bodies of 524,000 values"), a.waves(func(int) string { return values })},
		{fmt.Sprint(a.Bodies, " legal bodies of 1 MiB"), a.waves(largeBatches())},
		{fmt.Sprint(a.Connections, " unfinished forms"), a.hold(a.Connections, func(int) string { return form }, "")},
		{fmt.Sprint(a.Unfinished, " bodies without their last byte"), a.hold(a.Unfinished, a.unfinishedBody, "")},
		{fmt.Sprint(a.Connections, " idle connections"), a.hold(a.Connections, func(int) string { return "" }, "")},
		{fmt.Sprint(a.Connections, " slow connections"), a.hold(a.Connections, func(int) string {
			return "GET /docs HTTP/1.1\r\nHost: "
		}, "x")},
	}
}

// largeBatches returns a function that returns the n-th legal body of a batch of nearly 1 MiB. The
// batch references begin with a random text. Each run is a process of its own, and a body with the
// reference of an earlier run would be a replay, which costs the API less.
func largeBatches() func(n int) string {
	unique := rand.Text()
	return func(n int) string { return batchOfLongReferences(fmt.Sprint(unique, " ", n), 115) }
}

// batchOfLongReferences returns the body of a batch with the maximum number of rows. The references
// of its rows and customers have length code points of four bytes each; row references also have a
// number.
func batchOfLongReferences(reference string, length int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"batchReference":%q,"rows":[`, reference)
	long := strings.Repeat("\U0001F9FE", length)
	for i := range models.MaxBatchRows {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"customerReference":"%s","rowReference":"%s%d","amount":100}`, long, long, i)
	}
	b.WriteString("]}")
	return b.String()
}

// waves returns an attack that sends a batch of each attacker at the same time, at most every
// second. A wave begins only when all requests of the previous one have ended. body returns the
// body with the number n. The attack ignores the answers.
func (a *attackers) waves(body func(n int) string) func(ctx context.Context) error {
	var sent atomic.Int64
	return func(ctx context.Context) error {
		c := newLoadClient(a.Bodies)
		err := await(ctx, time.Second, func() (bool, error) {
			var group sync.WaitGroup
			for _, p := range a.Partners {
				text := body(int(sent.Add(1)))
				group.Go(func() {
					_ = c.do(&call{url: p.URL, authorization: bearer(p.Token), body: text})
				})
			}
			group.Wait()
			return false, nil
		})
		return ignoreAfterEnd(ctx, err)
	}
}

// unfinishedBody returns an authenticated request whose body of 60,000 bytes lacks its last byte. n
// selects the attacker.
func (a *attackers) unfinishedBody(n int) string {
	p := a.Partners[n%len(a.Partners)]
	_, path, _ := strings.Cut(p.URL, a.Address)
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 60000\r\n\r\n{%s", path, bearer(p.Token), strings.Repeat(" ", 59_998))
}

// hold returns an attack that opens n connections and keeps them open. On connection i, it first
// sends first(i), and then drip every second, if that is not empty. The API may close connections.
func (a *attackers) hold(n int, first func(int) string, drip string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		conns := make([]net.Conn, 0, n)
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for i := 0; i < n && ctx.Err() == nil; i++ {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Address)
			if err != nil {
				if ctx.Err() != nil {
					break
				}
				return err
			}
			conns = append(conns, c)
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, first(i))
		}
		for sleep(ctx, time.Second) {
			for _, c := range conns {
				if drip == "" {
					break
				}
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(c, drip)
			}
		}
		return nil
	}
}
