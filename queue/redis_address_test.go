package queue_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"partnerbilling/queue"
)

func TestParseRedis(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url      string
		want     string
		verified bool
	}{
		{"redis://r", "server r:6379", false},
		{"redis://:pw@r:1/3", "server r:1", false},
		{"rediss://u:pw@r:1", "server r:1", true},
		{"rediss://r:1", "server r:1", false},
		{"rediss://u:pw@r:1?skip_verify=true", "server r:1", false},
		{"unix:///run/redis.sock?db=1", "server /run/redis.sock", false},
		{"redis+sentinel://s1,s2:7,[::1]/0?master_name=m", "master m under the Sentinels s1:26379, s2:7, [::1]:26379", false},
		{"rediss+sentinel://u:p%40,w@s1/2?master_name=m&sentinel_password=x", "master m under the Sentinels s1:26379", true},
		{"rediss+sentinel://u:pw@s1?master_name=m", "master m under the Sentinels s1:26379", false},
		{"rediss+sentinel://s1?master_name=m&sentinel_password=x", "master m under the Sentinels s1:26379", false},
		{"redis+sentinel://s1?master_name=m&addr=s2:1", "master m under the Sentinels s1:26379, s2:1", false},
		{"rediss+cluster://u:pw@a:1,b", "Cluster of a:1, b:6379", true},
		{"redis+cluster://a,b:2/0?pool_size=4", "Cluster of a:6379, b:2", false},
	}
	for _, tt := range tests {
		r, err := queue.ParseRedis(tt.url, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if r.String() != tt.want || r.IsVerified() != tt.verified {
			t.Errorf("%s: %s, verified %t", tt.url, r, r.IsVerified())
		}
	}
}

func TestParseRedisRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"": "cannot be parsed", "secret": "cannot be parsed", "http://secret": "cannot be parsed",
		"redis://:secret@host:port":                           "cannot be parsed",
		"redis://:secret@r?unknown=secret":                    "cannot be parsed",
		"redis+other://:secret@r":                             "cannot be parsed",
		"redis+sentinel://:secret@s1":                         "master_name",
		"redis+sentinel://:secret@s1,,s2?master_name=m":       "cannot be parsed",
		"redis+sentinel://:secret@s1?master_name=m&secret=1":  "cannot be parsed",
		"redis+sentinel://s?master_name=m&replica_only=true":  "from masters only",
		"redis+cluster://:secret@a,b/1":                       "cannot be parsed",
		"redis+cluster://:secret@a,b?read_only=true":          "from masters only",
		"redis+cluster://:secret@a,b?route_by_latency=true":   "from masters only",
		"redis+cluster://:secret@a:port,b?route_randomly=yes": "cannot be parsed",
	} {
		if _, err := queue.ParseRedis(url, nil); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"redis://r", "redis+sentinel://s?master_name=m", "redis+cluster://a"} {
		if _, err := queue.ParseRedis(url, &tls.Config{}); err == nil || !strings.Contains(err.Error(), "rediss") {
			t.Errorf("certificates for %s: %v", url, err)
		}
	}
}
