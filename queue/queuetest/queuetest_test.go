package queuetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"partnerbilling/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersAreIndependent(t *testing.T) {
	t.Parallel()
	one := queuetest.Client(t, queuetest.Start(t).URL)
	two := queuetest.Client(t, queuetest.Start(t).URL)
	if err := one.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := two.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Get(t.Context(), "key").Result(); got != "value" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestStopKillStart(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	for name, end := range map[string]func(){"stop": server.Stop, "kill": server.Kill} {
		client := queuetest.Client(t, server.URL)
		if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
		end()
		if err := queuetest.Client(t, server.URL).Ping(t.Context()).Err(); err == nil {
			t.Errorf("after %s, the server answers", name)
		}
		server.Start()
		if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("after %s and start, the server has %d keys, %v", name, n, err)
		}
	}
}

func TestGivenServer(t *testing.T) {
	url := queuetest.Start(t).URL
	client := queuetest.Client(t, url)
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SVC_TEST_REDIS_URL", url)
	if got := queuetest.Redis(t); got != url {
		t.Errorf("got %s, want %s", got, url)
	}
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("the given server has %d keys, %v", n, err)
	}
}
