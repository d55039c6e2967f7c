package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// chaosFleet is everything that runs in a chaos run: the servers of Postgres and Redis, the
// processes of svc, the wires (TCP proxies) between them, and the partners.
type chaosFleet struct {
	svc        string // path of the svc binary
	database   *local.Servers
	cache      *local.Servers // without persistence: a restart loses all data
	store      *models.Store  // store and redis bypass the wires
	redis      redis.UniversalClient
	wires      wireSet
	members    map[string]*member
	railFaults *railFaults
	partners   []*chaosPartner
	env        []string // of every process

	apiPort, railPort *local.Port // reserved, since their processes restart
	running           *errgroup.Group
	end               context.CancelFunc

	mu         sync.Mutex
	duplicated []string // tasks of the last duplicate fault
}

const (
	chaosOrganisations = 3
	chaosSites         = 2 // per organisation
)

// open starts the fleet and waits until the API is ready. seed determines the random choices of the
// partners. If the service keeps up, the partners spread the submission of the rows over the
// duration within.
func (c *chaosFleet) open(ctx context.Context, seed uint64, rows int, within time.Duration) error {
	c.wires, c.members, c.end = wireSet{}, map[string]*member{}, func() {}
	for _, step := range []func(context.Context) error{c.openServers, c.openWires} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := c.seed(ctx, seed, rows, within); err != nil {
		return err
	}
	c.startMembers()
	return c.awaitReady(ctx)
}

// openServers starts Postgres and Redis, and connects to them.
func (c *chaosFleet) openServers(ctx context.Context) error {
	var err error
	if c.database, err = local.Temp(ctx, local.Options{WithoutRedis: true}); err != nil {
		return err
	}
	if c.cache, err = local.Temp(ctx, local.Options{WithoutPostgres: true, Ephemeral: true}); err != nil {
		return err
	}
	if c.store, err = openStore(ctx, c.database.DatabaseURL, 0); err != nil {
		return err
	}
	c.redis, err = queue.ConnectURL(c.cache.RedisURL)
	return err
}

// openWires reserves the ports of the API and the rail, and starts the wires.
func (c *chaosFleet) openWires(context.Context) error {
	var err error
	if c.apiPort, err = local.ReservePort(); err != nil {
		return err
	}
	if c.railPort, err = local.ReservePort(); err != nil {
		return err
	}
	postgres, redis := hostOf(c.database.DatabaseURL), hostOf(c.cache.RedisURL)
	upstreams := map[string]string{
		"api/postgres": postgres, "api/redis": redis, "rail/postgres": postgres, "partners/api": c.apiPort.Address(),
	}
	for _, worker := range workerNames {
		upstreams[worker+"/postgres"], upstreams[worker+"/redis"] = postgres, redis
		upstreams[worker+"/rail"] = c.railPort.Address()
	}
	for name, upstream := range upstreams {
		if err := c.wires.add(name, upstream); err != nil {
			return err
		}
	}
	return nil
}

// seed creates the organisations, their Sites and customers, and a chaosPartner for each Site. It
// divides the rows evenly among the partners.
func (c *chaosFleet) seed(ctx context.Context, seed uint64, rows int, within time.Duration) error {
	for i := range chaosOrganisations {
		organisation, err := c.store.CreateOrganisation(ctx, fmt.Sprint("organisation ", i))
		if err != nil {
			return err
		}
		credentials, err := c.store.CreateClient(ctx, organisation.ID, "program", models.PartnerScopes)
		if err != nil {
			return err
		}
		secret, err := c.store.AddClientSecret(ctx, credentials.ID)
		if err != nil {
			return err
		}
		for j := range chaosSites {
			site, err := c.site(ctx, organisation.ID)
			if err != nil {
				return err
			}
			n := len(c.partners)
			c.partners = append(c.partners, &chaosPartner{
				name: fmt.Sprintf("%d.%d", i, j), site: site.ID.String(), within: within,
				random: rand.New(rand.NewPCG(seed, uint64(1+n))), // repeatable on purpose
				rows:   rows*(n+1)/(chaosOrganisations*chaosSites) - rows*n/(chaosOrganisations*chaosSites),
				api: client.New(client.Config{
					BaseURL: "http://" + c.wires["partners/api"].Address(), ClientID: credentials.ID.String(),
					ClientSecret: secret,
					HTTP: &http.Client{
						Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2},
					},
					MaxBackoff: time.Second,
				}),
			})
		}
	}
	return nil
}

// site creates a Site with its customers.
func (c *chaosFleet) site(ctx context.Context, organisation models.OrganisationID) (models.Site, error) {
	site, err := c.store.CreateSite(ctx, organisation, "Site")
	if err != nil {
		return site, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range chaosCustomers {
		group.Go(func() error {
			return signUp(ctx, c.store, site, fmt.Sprint(i), chaosBehaviour(i))
		})
	}
	return site, group.Wait()
}

// startMembers starts all processes: the rail, the API and the workers.
func (c *chaosFleet) startMembers() {
	key := rail.SigningKey{ID: "chaos", Secret: []byte("not a secret")}
	c.railFaults = &railFaults{url: "http://" + c.railPort.Address(), key: key, active: map[int]rail.Faults{}}
	c.env = []string{
		"SVC_ENV=sandbox", "SVC_WEBHOOK_LOOPBACK=on", "SVC_MASTER_KEY=" + masterKey,
		"SVC_LOG_LEVEL=WARN", "SVC_RATE_LIMIT=off", "SVC_BATCH_RATE_LIMIT=off",
		"SVC_RAIL_KEY=" + key.ID + ":" + string(key.Secret),
	}
	ctx, end := context.WithCancel(context.Background()) // ended by close
	c.end, c.running = end, &errgroup.Group{}
	c.member(ctx, "rail", "SVC_LISTEN="+c.railPort.Address(), "SVC_REDIS_URL="+c.cache.RedisURL)
	c.member(ctx, "api", "SVC_LISTEN="+c.apiPort.Address(),
		"SVC_PUBLIC_BASE_URL=http://"+c.wires["partners/api"].Address(),
		"SVC_REDIS_URL="+c.wires["api/redis"].Through(c.cache.RedisURL))
	for _, worker := range workerNames {
		c.member(ctx, worker, "SVC_REDIS_URL="+c.wires[worker+"/redis"].Through(c.cache.RedisURL),
			"SVC_RAIL=http", "SVC_RAIL_URL=http://"+c.wires[worker+"/rail"].Address())
	}
}

// member starts a process with a name. The name up to the first dash is the svc command that the
// process runs: "worker-1" runs svc worker.
func (c *chaosFleet) member(ctx context.Context, name string, env ...string) {
	command, _, _ := strings.Cut(name, "-")
	m := &member{
		name: name, svc: c.svc, args: []string{command}, output: &transcript{}, done: make(chan struct{}),
		env: append(append(env, c.env...),
			"SVC_DATABASE_URL="+c.wires[name+"/postgres"].Through(c.database.DatabaseURL)),
	}
	c.members[name] = m
	c.running.Go(func() error { return m.run(ctx) })
}

// awaitReady waits until the API is ready. On failure, the error contains the log of the API.
func (c *chaosFleet) awaitReady(ctx context.Context) error {
	err := awaitReady(ctx, "http://"+c.apiPort.Address())
	if err != nil {
		output, _ := c.members["api"].output.read()
		return fmt.Errorf("the fleet does not start: %w\n%s", err, output)
	}
	return nil
}

// awaitReady waits until the API at the base URL is ready, for up to a minute.
func awaitReady(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return retryUntilDone(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the API is not ready: %s", resp.Status)
		}
		return nil
	})
}

// progress returns the counts of all partners' calls so far.
func (c *chaosFleet) progress() partnerCounts {
	var all partnerCounts
	for _, p := range c.partners {
		all.add(p.progress())
	}
	return all
}

func (c *chaosFleet) keepTranscripts() (string, error) { return keepTranscripts(c.members) }

// keepTranscripts writes the output of the processes to a new directory, and returns its path.
func keepTranscripts(members map[string]*member) (string, error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return "", err
	}
	for name, m := range members {
		output, _ := m.output.read()
		if err := os.WriteFile(filepath.Join(dir, name+".log"), output, 0o600); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// close kills the processes, closes the wires and stops the servers.
func (c *chaosFleet) close() error {
	c.end()
	var errs []error
	if c.running != nil {
		errs = append(errs, c.running.Wait())
	}
	c.wires.close()
	for _, port := range []*local.Port{c.apiPort, c.railPort} {
		if port != nil {
			errs = append(errs, port.Close())
		}
	}
	if c.redis != nil {
		errs = append(errs, c.redis.Close())
	}
	if c.store != nil {
		errs = append(errs, c.store.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, servers := range []*local.Servers{c.cache, c.database} {
		if servers != nil {
			errs = append(errs, servers.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}
