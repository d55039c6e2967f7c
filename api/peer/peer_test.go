package peer_test

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"partnerbilling/api/peer"
)

func proxies(t testing.TB, texts ...string) peer.Proxies {
	t.Helper()
	p, err := peer.ParseProxies(texts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClientBehindProxies(t *testing.T) {
	t.Parallel()
	trusted := proxies(t, "10.0.0.0/8", "2001:db8::/32", "192.0.2.7")
	tests := map[string]struct {
		peer           string
		xff, forwarded []string
		want           string
	}{
		"direct":                       {peer: "203.0.113.5", want: "203.0.113.5"},
		"an untrusted peer's header":   {peer: "203.0.113.5", xff: []string{"198.51.100.1"}, want: "203.0.113.5"},
		"a proxy without a header":     {peer: "10.1.1.1", want: "10.1.1.1"},
		"one proxy":                    {peer: "10.1.1.1", xff: []string{"198.51.100.1"}, want: "198.51.100.1"},
		"a forged first entry":         {peer: "10.1.1.1", xff: []string{"1.2.3.4, 198.51.100.1"}, want: "198.51.100.1"},
		"two proxies":                  {peer: "10.1.1.1", xff: []string{"198.51.100.1,10.2.2.2"}, want: "198.51.100.1"},
		"two lines":                    {peer: "10.1.1.1", xff: []string{"1.2.3.4", "198.51.100.1"}, want: "198.51.100.1"},
		"a single trusted address":     {peer: "192.0.2.7", xff: []string{"198.51.100.1"}, want: "198.51.100.1"},
		"its neighbour":                {peer: "192.0.2.8", xff: []string{"198.51.100.1"}, want: "192.0.2.8"},
		"only proxies":                 {peer: "10.1.1.1", xff: []string{"10.3.3.3, 10.2.2.2"}, want: "10.3.3.3"},
		"malformed":                    {peer: "10.1.1.1", xff: []string{"198.51.100.1, nonsense"}, want: "10.1.1.1"},
		"malformed beyond a proxy":     {peer: "10.1.1.1", xff: []string{"nonsense, 10.2.2.2"}, want: "10.2.2.2"},
		"an empty header":              {peer: "10.1.1.1", xff: []string{""}, want: "10.1.1.1"},
		"a port":                       {peer: "10.1.1.1", xff: []string{"198.51.100.1:4711"}, want: "198.51.100.1"},
		"IPv6":                         {peer: "2001:db8::1", xff: []string{"2001:db9::5"}, want: "2001:db9::5"},
		"IPv6 in brackets with a port": {peer: "2001:db8::1", xff: []string{"[2001:db9::5]:443"}, want: "2001:db9::5"},
		"a mapped peer":                {peer: "::ffff:10.1.1.1", xff: []string{"198.51.100.1"}, want: "198.51.100.1"},
		"a mapped client":              {peer: "10.1.1.1", xff: []string{"::ffff:198.51.100.1"}, want: "198.51.100.1"},
		"a mapped proxy in the header": {peer: "10.1.1.1", xff: []string{"198.51.100.1, ::ffff:10.2.2.2"},
			want: "198.51.100.1"},
		"a zone": {peer: "10.1.1.1", xff: []string{"fe80::1%eth0"}, want: "fe80::1"},

		"Forwarded":              {peer: "10.1.1.1", forwarded: []string{"for=198.51.100.1;proto=https"}, want: "198.51.100.1"},
		"Forwarded, upper case":  {peer: "10.1.1.1", forwarded: []string{"Proto=http; FOR=198.51.100.1"}, want: "198.51.100.1"},
		"Forwarded, quoted IPv6": {peer: "10.1.1.1", forwarded: []string{`for="[2001:db9::5]:47"`}, want: "2001:db9::5"},
		"Forwarded, a quoted comma": {peer: "10.1.1.1", forwarded: []string{`for=1.2.3.4;host="a,for=6.6.6.6", for=10.2.2.2`},
			want: "1.2.3.4"},
		"Forwarded, unknown":    {peer: "10.1.1.1", forwarded: []string{"for=198.51.100.1, for=unknown"}, want: "10.1.1.1"},
		"Forwarded, obfuscated": {peer: "10.1.1.1", forwarded: []string{"for=_hidden"}, want: "10.1.1.1"},
		"Forwarded without for": {peer: "10.1.1.1", forwarded: []string{"for=1.2.3.4, by=10.9.9.9"}, want: "10.1.1.1"},
		"Forwarded, repeated":   {peer: "10.1.1.1", forwarded: []string{"for=1.2.3.4;for=5.6.7.8"}, want: "10.1.1.1"},

		"both agree": {peer: "10.1.1.1", xff: []string{"198.51.100.1"}, forwarded: []string{"for=198.51.100.1"},
			want: "198.51.100.1"},
		"both disagree": {peer: "10.1.1.1", xff: []string{"198.51.100.1"}, forwarded: []string{"for=1.2.3.4"},
			want: "10.1.1.1"},
		"too many hops": {peer: "10.1.1.1", xff: []string{"1.2.3.4" + strings.Repeat(",10.2.2.2", 40)}, want: "10.2.2.2"},
	}
	for name, tt := range tests {
		got := trusted.Client(netip.MustParseAddr(tt.peer), tt.xff, tt.forwarded)
		if got.String() != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		r := &http.Request{RemoteAddr: net.JoinHostPort(tt.peer, "4711"), Header: http.Header{
			peer.HeaderForwardedFor: tt.xff, peer.HeaderForwarded: tt.forwarded,
		}}
		if again := trusted.ClientOf(r); again != got {
			t.Errorf("%s: ClientOf: %s, want %s", name, again, got)
		}
	}
	if got := trusted.ClientOf(&http.Request{RemoteAddr: "@"}); got.IsValid() {
		t.Errorf("a peer without an address: %s", got)
	}
}

func TestParseProxiesRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104"} {
		if p, err := peer.ParseProxies([]string{text}); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}

func TestFromNet(t *testing.T) {
	t.Parallel()
	if got := peer.FromNet(&net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1}); got.String() != "192.0.2.1" {
		t.Errorf("TCP: %s", got)
	}
	if got := peer.FromNet(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("Unix: %s", got)
	}
}

// An untrusted peer is the client, whatever the headers say. Entries to the left of an untrusted
// address have no effect.
func FuzzClient(f *testing.F) {
	f.Add("1.2.3.4", `for=1.2.3.4`)
	f.Add("[2001:db9::5]:443, ::ffff:10.2.2.2", `for="[2001:db9::5]:47";by=x, for=unknown`)
	f.Add(`,,"`, `for="\",for=1.1.1.1`)
	trusted := proxies(f, "10.0.0.0/8")
	proxy, stranger := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.5")
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		if got := trusted.Client(stranger, []string{xff}, []string{forwarded}); got != stranger {
			t.Errorf("an untrusted peer became %s", got)
		}
		if got := trusted.Client(proxy, []string{xff + ", 203.0.113.5"}, nil); got != stranger {
			t.Errorf("%q before the client made it %s", xff, got)
		}
		if got := trusted.Client(proxy, []string{xff}, []string{forwarded}); !got.IsValid() || got.Is4In6() ||
			got.Zone() != "" {
			t.Errorf("%q, %q: %s", xff, forwarded, got)
		}
	})
}
