package webhook_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
)

// nameServer answers every query for an IPv4 address with the addresses that a test sets.
type nameServer struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

func (n *nameServer) set(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = nil
	for _, a := range addresses {
		n.addresses = append(n.addresses, netip.MustParseAddr(a))
	}
}

// resolver starts the server and returns a resolver that queries it.
func (n *nameServer) resolver(t testing.TB) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		question := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(n.answer(question[:size]), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer returns the answer to a query: its header and question, and an A record for each address
// (RFC 1035).
func (n *nameServer) answer(question []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	answer := append([]byte{}, question[:end]...)
	answer[2], answer[3] = 0x81, 0x80 // a response, recursion available
	binary.BigEndian.PutUint16(answer[6:], 0)
	binary.BigEndian.PutUint16(answer[8:], 0)
	binary.BigEndian.PutUint16(answer[10:], 0) // without the EDNS record of the query
	if binary.BigEndian.Uint16(question[end-4:]) != 1 {
		return answer // there are only IPv4 addresses
	}
	binary.BigEndian.PutUint16(answer[6:], uint16(len(n.addresses)))
	for _, a := range n.addresses {
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, a.AsSlice()...)
	}
	return answer
}

func TestNamesOfInternalAddressesAreRefused(t *testing.T) {
	t.Parallel()
	hits := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hits <- r.Host }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	names := &nameServer{}
	resolver := names.resolver(t)
	for _, c := range []struct {
		name      string
		sandbox   bool
		addresses []string
		want      string
	}{
		{"loopback in the sandbox", true, []string{"127.0.0.1"}, ""},
		{"loopback in production", false, []string{"127.0.0.1"}, "the name leads to an address that is not allowed"},
		{"private in the sandbox", true, []string{"10.0.0.1"}, "the name leads to an address that is not allowed"},
		{"metadata", true, []string{"169.254.169.254"}, "the name leads to an address that is not allowed"},
		{"all of several", true, []string{"0.0.0.0", "192.168.1.1"},
			"the name leads to an address that is not allowed"},
		{"nothing", true, nil, "the name cannot be resolved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names.set(c.addresses...)
			s := newSender(t, func(cfg *webhook.Config) {
				cfg.Resolver, cfg.Targets = resolver, models.WebhookTargets{Sandbox: c.sandbox, Loopback: c.sandbox}
			})
			scheme := "http://"
			if !c.sandbox {
				scheme = "https://"
			}
			got := s.Send(t.Context(), message(scheme+"hook.test:"+port+"/"))
			refused := strings.Contains(c.want, "not allowed")
			if refused && got.Address != "" {
				t.Errorf("the attempt shows %s", got.Address)
			}
			if got.Failure != c.want || (len(hits) > 0) != (c.want == "") {
				t.Errorf("got %q, %d hits, want %q (%v)", got.Failure, len(hits), c.want, got.Err)
			}
			for len(hits) > 0 {
				<-hits
			}
		})
	}
}

// The name is resolved and its address checked anew at every dial, since it may point to an
// internal address by now.
func TestNameThatChangesBetweenAttempts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	names := &nameServer{}
	resolver := names.resolver(t)
	s := newSender(t, func(cfg *webhook.Config) { cfg.Resolver = resolver })
	send := func(want int, failure string) {
		t.Helper()
		m := message("http://hook.test:" + port + "/")
		m.Fresh = true
		if got := s.Send(t.Context(), m); got.StatusCode != want || got.Failure != failure {
			t.Errorf("got %+v, want %d %q", got, want, failure)
		}
	}
	names.set()
	send(0, "the name cannot be resolved")
	names.set("127.0.0.1")
	send(200, "")
	names.set("10.0.0.1")
	send(0, "the name leads to an address that is not allowed")
	names.set("127.0.0.1")
	send(200, "")
}
