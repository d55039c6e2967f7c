package postgres_test

import (
	"net"
	"testing"

	"github.com/jackc/pgx/v5"

	"partnerbilling/models/modelstest"
)

// The kernel ends pooled connections whose peer acknowledges nothing.
func TestDeadPeersAreNoticed(t *testing.T) {
	t.Parallel()
	conn, err := modelstest.Open(t).DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(driver any) error {
		raw, err := driver.(interface{ Conn() *pgx.Conn }).Conn().PgConn().Conn().(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) {
			modelstest.ProveSocket(t, int(fd))
		})
	})
	if err != nil {
		t.Error(err)
	}
}
