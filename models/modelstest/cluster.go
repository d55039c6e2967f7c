package modelstest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

// urlEnv names the environment variable with the URL of a superuser on an existing server. If it is
// set, the kit starts no server. It creates databases with names of its own on that server and
// drops them afterwards.
const urlEnv = "SVC_TEST_DATABASE_URL"

// shared is the test process's cluster.
var shared lazyCluster

// lazyCluster starts a cluster when a test first needs it.
type lazyCluster struct {
	mu      sync.Mutex
	cluster *cluster
	err     error
}

// start starts the cluster on its first call, and returns the same cluster or error on later calls.
// The cluster outlives ctx.
func (l *lazyCluster) start(ctx context.Context) (*cluster, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cluster == nil && l.err == nil {
		l.cluster, l.err = startCluster(ctx)
	}
	return l.cluster, l.err
}

// stop stops the cluster, if one was started. Later calls of start then fail.
func (l *lazyCluster) stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cluster == nil {
		return nil
	}
	c := l.cluster
	l.cluster, l.err = nil, errors.New("the tests are over")
	return c.stop(context.Background())
}

// cluster is a PostgreSQL server with a migrated template database. Each test gets a copy of the
// template, or an empty database.
type cluster struct {
	servers *local.Servers // nil for an existing server
	url     url.URL        // of the administrator
	admin   *sql.DB
	prefix  string       // of the databases' names
	last    atomic.Int64 // number in the name of the last database
}

func startCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{prefix: "test_" + strings.ToLower(rand.Text()[:8])}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	if err := c.makeTemplate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make the template database: %w", err), c.close(ctx))
	}
	return c, nil
}

// connect starts a server, unless urlEnv names one, and opens a pool to it.
func (c *cluster) connect(ctx context.Context) error {
	dsn := os.Getenv(urlEnv)
	if dsn == "" {
		servers, err := local.Temp(ctx, local.Options{Ephemeral: true, WithoutRedis: true})
		if err != nil {
			return err
		}
		c.servers, dsn = servers, servers.DatabaseURL
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return fmt.Errorf("%s: not a URL", urlEnv)
	}
	c.url = *u
	c.admin, err = sql.Open("pgx", dsn)
	return err
}

// makeTemplate migrates a database and closes it to connections: an open connection would prevent
// copies.
func (c *cluster) makeTemplate(ctx context.Context) error {
	if err := c.exec(ctx, "CREATE DATABASE "+c.template()); err != nil {
		return err
	}
	store, err := models.Open(postgres.Config{DSN: c.dsn(c.template()), ApplicationName: "template"})
	if err != nil {
		return err
	}
	if err := errors.Join(migrate(ctx, store), store.Close()); err != nil {
		return err
	}
	return c.exec(ctx, "ALTER DATABASE "+c.template()+" ALLOW_CONNECTIONS false")
}

func (c *cluster) template() string { return c.prefix + "_template" }

// create copies the template and returns the name of the copy. Copying files takes less CPU than
// the default strategy, which also writes every page to the WAL.
func (c *cluster) create(ctx context.Context) (string, error) {
	name := fmt.Sprintf("%s_%d", c.prefix, c.last.Add(1))
	return name, c.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+c.template()+" STRATEGY file_copy")
}

// createEmpty makes an empty database and returns its name.
func (c *cluster) createEmpty(ctx context.Context) (string, error) {
	name := fmt.Sprintf("%s_%d", c.prefix, c.last.Add(1))
	return name, c.exec(ctx, "CREATE DATABASE "+name+" STRATEGY file_copy")
}

func (c *cluster) drop(ctx context.Context, name string) error {
	return c.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func (c *cluster) exec(ctx context.Context, statement string) error {
	_, err := c.admin.ExecContext(ctx, statement)
	return err
}

// dsn returns the URL of a database of the cluster.
func (c *cluster) dsn(name string) string {
	u := c.url
	u.Path = "/" + name
	return u.String()
}

// stop closes the pool and stops the server, if the kit started it. On an existing server it drops
// the template.
func (c *cluster) stop(ctx context.Context) error {
	var err error
	if c.servers == nil {
		err = c.drop(ctx, c.template())
	}
	return errors.Join(err, c.close(ctx))
}

// close closes the pool and stops the server, if the kit started it.
func (c *cluster) close(ctx context.Context) error {
	var errs []error
	if c.admin != nil {
		errs = append(errs, c.admin.Close())
	}
	if c.servers != nil {
		errs = append(errs, c.servers.Stop(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}
