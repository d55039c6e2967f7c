package queue_test

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// The kernel closes connections to a Redis that acknowledges nothing any more.
func TestConnectionsToADeadRedisAreClosed(t *testing.T) {
	t.Parallel()
	client, err := queue.ConnectURL(queuetest.Start(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	single, ok := client.(*redis.Client)
	if !ok {
		t.Fatalf("the client is a %T", client)
	}
	conn, err := single.Options().Dialer(t.Context(), "tcp", single.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { modelstest.ProveSocket(t, int(fd)) }); err != nil {
		t.Error(err)
	}
}
