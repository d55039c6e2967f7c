package ops_test

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api/operator"
	"partnerbilling/api/peer"
)

// sharedLogin is the login of all tests, since hashes of passwords take long.
var sharedLogin = sync.OnceValues(func() (*operator.Login, error) {
	accounts := operator.Accounts{}
	err := errors.Join(accounts.AddPassword("jane", password, operator.RoleAct),
		accounts.AddPassword("john", password, operator.RoleLook))
	if err != nil {
		return nil, err
	}
	return operator.New(operator.Config{
		Accounts: accounts, Now: time.Now, Metrics: prometheus.NewRegistry(), Proxies: peer.Proxies{},
		Log: slog.New(slog.DiscardHandler),
	})
})
