package models_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"partnerbilling/models"
)

func TestWebhookURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct{ production, sandbox, loopback bool }{
		"https://example.com":                         {true, true, true},
		"https://example.com/hook?a=b%20c":            {true, true, true},
		"https://hooks.example.com.:8443/":            {true, true, true},
		"https://xn--bcher-kva.example/":              {true, true, true},
		"https://8.8.8.8/":                            {true, true, true},
		"https://[2606:4700:4700::1111]:443/":         {true, true, true},
		"https://[64:ff9b::808:808]/":                 {true, true, true},
		"HTTPS://EXAMPLE.COM/":                        {true, true, true},
		"http://example.com/":                         {false, true, true},
		"http://localhost:3000/":                      {false, false, true},
		"https://localhost:3000/":                     {false, false, true},
		"https://app.LocalHost.:3000/":                {false, false, true},
		"https://printer.local/":                      {false, false, false},
		"https://metadata.google.internal/":           {false, false, false},
		"https://metadata.goog/":                      {false, false, false},
		"https://metadata.tencentyun.com/":            {false, false, false},
		"https://metadata.platformequinix.com/":       {false, false, false},
		"https://METADATA.GOOGLE.INTERNAL./":          {false, false, false},
		"https://api.default.svc.cluster.local/":      {false, false, false},
		"https://api.default.svc/":                    {false, false, false},
		"https://router.home.arpa/":                   {false, false, false},
		"https://files.corp/":                         {false, false, false},
		"https://wiki.intranet/":                      {false, false, false},
		"https://nas.lan/":                            {false, false, false},
		"https://vault.service.consul/":               {false, false, false},
		"https://x.localdomain/":                      {false, false, false},
		"https://x.private/":                          {false, false, false},
		"https://db.home/":                            {false, false, false},
		"https://redis/":                              {false, false, false},
		"https://redis./":                             {false, false, false},
		"https://redis:6379/":                         {false, false, false},
		"https://internal.example.com/":               {true, true, true},
		"https://local.example/":                      {true, true, true},
		"https://mylocal/":                            {false, false, false},
		"https://notlocal.example.com/":               {true, true, true},
		"https://localhost.example.com/":              {true, true, true},
		"http://127.0.0.1:3000/":                      {false, false, true},
		"https://127.0.0.1/":                          {false, false, true},
		"https://[::1]/":                              {false, false, true},
		"https://[::ffff:127.0.0.1]/":                 {false, false, true},
		"https://[::ffff:10.0.0.1]/":                  {false, false, false},
		"https://[64:ff9b::7f00:1]/":                  {false, false, false}, // a gateway's own loopback
		"https://[64:ff9b::a00:1]/":                   {false, false, false},
		"https://[64:ff9b:1::808:808]/":               {false, false, false},
		"https://[2002:808:808::1]/":                  {false, false, false},
		"https://[2002:7f00:1::]/":                    {false, false, false},
		"https://[2001:0:808:808::1]/":                {false, false, false},
		"https://[::7f00:1]/":                         {false, false, false},
		"https://[fe80::1]/":                          {false, false, false},
		"https://[fe80::5efe:8.8.8.8]/":               {false, false, false},
		"https://[2606:4700::200:5efe:10.0.0.1]/":     {false, false, false},
		"https://[fd00::1]/":                          {false, false, false},
		"https://[fe80::1%25eth0]/":                   {false, false, false},
		"https://[::1%25lo]/":                         {false, false, false},
		"https://[::]/":                               {false, false, false},
		"https://0.0.0.0/":                            {false, false, false},
		"https://10.1.2.3/":                           {false, false, false},
		"https://169.254.169.254/latest/meta-data":    {false, false, false},
		"https://100.64.0.1/":                         {false, false, false},
		"https://192.168.0.1/":                        {false, false, false},
		"https://224.0.0.1/":                          {false, false, false},
		"https://255.255.255.255/":                    {false, false, false},
		"https://198.51.100.1/":                       {false, false, false},
		"https://127.1/":                              {false, false, false},
		"https://2130706433/":                         {false, false, false},
		"https://0x7f000001/":                         {false, false, false},
		"https://0177.0.0.1/":                         {false, false, false},
		"https://127.0.0.1.:443/":                     {false, false, false},
		"https://user@example.com/":                   {false, false, false},
		"https://user:pass@example.com/":              {false, false, false},
		"https://@example.com/":                       {false, false, false},
		"https://example.com/#fragment":               {false, false, false},
		"https://example.com/#":                       {false, false, false},
		"https://example.com:1/":                      {true, true, true},
		"https://example.com:444/":                    {true, true, true},
		"https://example.com:65535/":                  {true, true, true},
		"http://127.0.0.1:1/":                         {false, false, true},
		"http://localhost:81/":                        {false, false, true},
		"https://example.com:-1/":                     {false, false, false},
		"https://example.com:0/":                      {false, false, false},
		"https://example.com:/":                       {false, false, false},
		"https://example.com:65536/":                  {false, false, false},
		"https://example.com:80/":                     {true, true, true},
		"https://%6c%6fcalhost/":                      {false, false, false},
		"https://bücher.example/":                     {false, false, false},
		"https://exa mple.com/":                       {false, false, false},
		"https://example.com/a b":                     {false, false, false},
		"https://example.com\\@127.0.0.1/":            {false, false, false},
		"https:///hook":                               {false, false, false},
		"https:example.com":                           {false, false, false},
		"//example.com":                               {false, false, false},
		"example.com":                                 {false, false, false},
		"ftp://example.com/":                          {false, false, false},
		"file:///etc/passwd":                          {false, false, false},
		"":                                            {false, false, false},
		"https://-example.com/":                       {false, false, false},
		"https://example..com/":                       {false, false, false},
		"https://" + strings.Repeat("a", 64) + ".com": {false, false, false},
		"https://example.com/" + strings.Repeat("a", models.MaxURLLength): {false, false, false},
	} {
		if err := (models.WebhookTargets{}).CheckURL(raw); (err == nil) != want.production {
			t.Errorf("production: %.80s: %v", raw, err)
		}
		if err := (models.WebhookTargets{Sandbox: true}).CheckURL(raw); (err == nil) != want.sandbox {
			t.Errorf("sandbox: %.80s: %v", raw, err)
		}
		if err := (models.WebhookTargets{Sandbox: true, Loopback: true}).CheckURL(raw); (err == nil) != want.loopback {
			t.Errorf("loopback: %.80s: %v", raw, err)
		}
	}
}

// Every accepted URL has one reading: a plain public host, or a name to check at the dial.
func FuzzWebhookURL(f *testing.F) {
	for _, seed := range []string{"https://example.com/x?y", "https://[::ffff:127.0.0.1]:443/", "https://127.1",
		"https://a@b:1/", "http://x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if (models.WebhookTargets{}).CheckURL(raw) != nil {
			return
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q: %v, %v", raw, u, err)
		}
		again, err := url.Parse(u.String())
		if err != nil || again.Host != u.Host {
			t.Fatalf("%q reads differently the second time: %v, %v", raw, again, err)
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && (ip.IsPrivate() || ip.Unmap().IsLoopback() ||
			ip.IsLinkLocalUnicast() || ip.IsUnspecified()) {
			t.Fatalf("%q", raw)
		}
	})
}

func TestDialledAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]struct{ production, sandbox, loopback bool }{
		"93.184.216.34:443":           {true, true, true},
		"[2606:4700:4700::1111]:8443": {true, true, true},
		"127.0.0.1:8080":              {false, false, true},
		"127.8.9.1:8080":              {false, false, true},
		"[::1]:8080":                  {false, false, true},
		"[::ffff:127.0.0.1]:8080":     {false, false, true},
		"[::ffff:192.168.1.1]:8080":   {false, false, false},
		"[64:ff9b::7f00:1]:443":       {false, false, false},
		"[64:ff9b::808:808]:443":      {true, true, true},
		"0.0.0.0:80":                  {false, false, false},
		"93.184.216.34:444":           {true, true, true},
		"127.0.0.1:1":                 {false, false, true},
		"[fe80::1%eth0]:443":          {false, false, false},
	} {
		parsed := netip.MustParseAddrPort(addr)
		if err := (models.WebhookTargets{}).CheckAddr(parsed); (err == nil) != want.production {
			t.Errorf("production: %s: %v", addr, err)
		}
		if err := (models.WebhookTargets{Sandbox: true}).CheckAddr(parsed); (err == nil) != want.sandbox {
			t.Errorf("sandbox: %s: %v", addr, err)
		}
		err := models.WebhookTargets{Sandbox: true, Loopback: true}.CheckAddr(parsed)
		if (err == nil) != want.loopback {
			t.Errorf("loopback: %s: %v", addr, err)
		}
		if err != nil && strings.Contains(err.Error(), parsed.Addr().String()) {
			t.Errorf("the refusal shows the address: %v", err)
		}
	}
}
