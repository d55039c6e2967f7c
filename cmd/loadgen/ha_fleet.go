package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local"
	"partnerbilling/deploy/wire"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// haFleet is everything that runs while servers fail over: a primary Postgres with its standby,
// Redis, the gateway, the processes of svc, and the partners. The gateway has a database of its
// own, which never fails. open starts all of it, and close ends it.
type haFleet struct {
	svc    string // path of the svc binary
	plan   haPlan
	losses *lossHistory
	pace   *haPace

	deployed    *haDeployment // in place of pair and cache; may be nil
	pair        *local.Pair
	durable     bool           // the pair syncs commits to disk
	proxy       *wire.Wire     // to the primary; may be nil
	railServers *local.Servers // database of the rail
	cache       *local.Servers // a Redis that never fails; nil with sentinels or cluster
	sentinels   *local.SentinelGroup
	cluster     *local.RedisCluster
	receiver    *haReceiver   // nil without webhooks
	store       *models.Store // on the pair
	railStore   *models.Store // on the database of the rail
	apiPort     *local.Port
	railPort    *local.Port

	members   map[string]*member
	running   *errgroup.Group
	end       context.CancelFunc
	env       []string // of all processes but the rail
	observed  *observer
	transport http.RoundTripper // of the partners' programs; nil for observed

	partners []*haPartner
	prober   struct { // a client that finds out when the service works again
		api     *client.Client
		site    string
		batches int // submitted so far
	}
}

// haWorkers lists the names of the worker processes.
var haWorkers = []string{"worker-1", "worker-2"}

// open starts the fleet and waits until the API is ready.
func (f *haFleet) open(ctx context.Context) error {
	f.prepare()
	f.observed = &observer{next: &http.Transport{MaxIdleConnsPerHost: 64}}
	f.pace = &haPace{promotions: f.plan.Promotions}
	if f.plan.Redis != "" {
		f.receiver = newHAReceiver()
	}
	for _, step := range []func(context.Context) error{f.openServers, f.seed, f.startMembers, f.awaitReady} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	f.pace.last = time.Now()
	return nil
}

// prepare initialises the fleet, so that close works even if opening fails.
func (f *haFleet) prepare() { f.members, f.end = map[string]*member{}, func() {} }

// openServers connects to the deployment, or starts the pair and Redis. It also starts the database
// of the rail, and reserves the ports of the API and the rail.
func (f *haFleet) openServers(ctx context.Context) error {
	var err error
	if f.deployed == nil {
		err = f.openPair(ctx)
	} else {
		f.store, err = openStore(ctx, f.deployed.ownerURL, 0)
	}
	if err != nil {
		return err
	}
	if f.railServers, err = local.Temp(ctx, local.Options{WithoutRedis: true, Ephemeral: true}); err != nil {
		return err
	}
	if f.railStore, err = openStore(ctx, f.railServers.DatabaseURL, 0); err != nil {
		return err
	}
	if f.apiPort, err = local.ReservePort(); err != nil {
		return err
	}
	f.railPort, err = local.ReservePort()
	return err
}

// openPair starts the pair, the proxy to it, and Redis.
func (f *haFleet) openPair(ctx context.Context) (err error) {
	if f.pair, err = local.TempPair(ctx, local.Options{Ephemeral: !f.durable}); err != nil {
		return err
	}
	if f.plan.Proxy {
		if f.proxy, err = wire.New(hostOf(f.pair.Primary().DatabaseURL)); err != nil {
			return err
		}
	}
	if err = f.openRedis(ctx); err != nil {
		return err
	}
	f.store, err = openStore(ctx, f.pair.DatabaseURL(), 0)
	return err
}

// seed creates the organisations, their Sites and customers, and an haPartner with tills for each
// Site. It divides the planned rows and payments evenly among the partners.
func (f *haFleet) seed(ctx context.Context) error {
	app, err := f.newClient(ctx, models.OrganisationID{}, models.CustomerAppScopes)
	if err != nil {
		return err
	}
	payer := &customerApp{base: f.baseURL(), id: app.ClientID, secret: app.ClientSecret, http: app.HTTP}
	const sites = chaosOrganisations * chaosSites
	part := func(all, n int) int { return all*(n+1)/sites - all*n/sites } // of the n-th Site
	for range chaosOrganisations {
		organisation, err := f.store.CreateOrganisation(ctx, "organisation")
		if err != nil {
			return err
		}
		access, err := f.newClient(ctx, organisation.ID, models.PartnerScopes)
		if err != nil {
			return err
		}
		if f.receiver != nil {
			if err := f.receiver.configure(ctx, f.store, organisation.ID); err != nil {
				return err
			}
		}
		for range chaosSites {
			n := len(f.partners)
			p := &haPartner{
				number: n, fleet: f, api: client.New(access), rows: part(f.plan.Rows, n),
				random: rand.New(rand.NewPCG(f.plan.Seed, uint64(1+n))), // repeatable on purpose
			}
			site, err := f.store.CreateSite(ctx, organisation.ID, "Site")
			if err != nil {
				return err
			}
			p.site = site.ID
			if p.customers, err = f.signUp(ctx, site); err != nil {
				return err
			}
			p.addTills(payer, part(f.plan.Payments, n))
			f.partners = append(f.partners, p)
		}
		f.prober.api, f.prober.site = client.New(access), f.partners[len(f.partners)-1].site.String()
	}
	return f.signUpProbe(ctx, f.partners[len(f.partners)-1].site)
}

// rateLimit returns the value of the API's rate limits. In runs with webhooks, it is a limit that
// is never reached, so that the API counts requests in Redis. Other runs have no limit.
func (f *haFleet) rateLimit() string {
	if f.receiver == nil {
		return "off"
	}
	return "100000"
}

// newClient creates an API client of the owner with the scopes. It returns the configuration for a
// program that makes no retries, and whose answers the observer checks.
func (f *haFleet) newClient(
	ctx context.Context, owner models.OrganisationID, scopes []models.Scope,
) (client.Config, error) {
	c, err := f.store.CreateClient(ctx, owner, "program", scopes)
	if err != nil {
		return client.Config{}, err
	}
	secret, err := f.store.AddClientSecret(ctx, c.ID)
	return client.Config{
		BaseURL: f.baseURL(), ClientID: c.ID.String(), ClientSecret: secret, MaxRetries: -1,
		HTTP: &http.Client{Timeout: 40 * time.Second, Transport: cmp.Or[http.RoundTripper](f.transport, f.observed)},
	}, err
}

// serversEnv returns the environment variables by which processes reach PostgreSQL and Redis.
func (f *haFleet) serversEnv() []string {
	if f.deployed != nil {
		return f.deployed.env
	}
	url := f.pair.DatabaseURL()
	if f.proxy != nil {
		url = f.proxy.Through(f.pair.Primary().DatabaseURL)
	}
	return []string{"SVC_DATABASE_URL=" + url, "SVC_REDIS_URL=" + f.redisURL()}
}

// redirect points the proxy to the new primary.
func (f *haFleet) redirect() {
	if f.proxy != nil {
		f.proxy.Redirect(hostOf(f.pair.Primary().DatabaseURL))
	}
}

func (f *haFleet) baseURL() string { return "http://" + f.apiPort.Address() }

// haCustomer is a customer of a Site.
type haCustomer struct {
	reference string // the customer's index in the Site, as text
	agreement string // id of the agreement with the gateway
	behaviour models.Behaviour
	revoked   span // of the last acknowledged revocation; zero without one
}

// signUp creates the linked customers of a Site, with accounts on the gateway.
func (f *haFleet) signUp(ctx context.Context, site models.Site) ([]*haCustomer, error) {
	customers := make([]*haCustomer, chaosCustomers)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range customers {
		group.Go(func() error {
			invitation := models.NewInvitation{SiteID: site.ID, CustomerReference: fmt.Sprint(i)}
			link, _, err := f.store.CreateInvitation(ctx, invitation, nil)
			if err != nil {
				return err
			}
			behaviour := chaosBehaviour(i)
			customers[i] = &haCustomer{reference: fmt.Sprint(i), agreement: link.ID.String(), behaviour: behaviour}
			if err := f.railStore.OpenSandboxAccount(ctx, customers[i].agreement, behaviour); err != nil {
				return err
			}
			party := models.Party{CustomerID: link.ID.String(), AgreementID: link.ID.String()}
			_, err = f.store.CompleteLink(ctx, link.ID, party)
			return err
		})
	}
	return customers, group.Wait()
}

// startMembers starts all processes: the gateway, the API and the workers.
func (f *haFleet) startMembers(context.Context) error {
	ctx := f.startGateway()
	f.member(ctx, "api", "api", f.apiEnv(f.apiPort.Address()))
	for _, worker := range haWorkers {
		f.member(ctx, worker, "worker", f.env)
	}
	return nil
}

// apiEnv returns the environment variables of an API that listens on the address.
func (f *haFleet) apiEnv(listen string) []string {
	return slices.Concat(f.env, []string{"SVC_LISTEN=" + listen, "SVC_PUBLIC_BASE_URL=" + f.baseURL()})
}

// startGateway sets the environment variables of all processes, and starts the gateway. It returns
// the context in which processes run until close.
func (f *haFleet) startGateway() context.Context {
	key := rail.SigningKey{ID: "ha", Secret: []byte("not a secret")}
	f.env = []string{
		"SVC_ENV=sandbox", "SVC_MASTER_KEY=" + masterKey, "SVC_LOG_LEVEL=WARN", "SVC_RATE_LIMIT=" + f.rateLimit(),
		"SVC_BATCH_RATE_LIMIT=" + f.rateLimit(), "SVC_WEBHOOK_LOOPBACK=on",
		"SVC_RAIL_KEY=" + key.ID + ":" + string(key.Secret),
		"SVC_DATABASE_CONNS=8",
	}
	servers := f.serversEnv()
	railEnv := slices.Concat(f.env, servers, []string{ // the last value of a variable counts
		"SVC_DATABASE_URL=" + f.railServers.DatabaseURL, "SVC_DATABASE_POOLER=off",
		"SVC_LISTEN=" + f.railPort.Address(),
	})
	f.env = append(append(f.env, servers...), "SVC_RAIL=http", "SVC_RAIL_URL=http://"+f.railPort.Address())
	ctx, end := context.WithCancel(context.Background()) // ended by close
	f.end, f.running = end, &errgroup.Group{}
	f.member(ctx, "rail", "rail", railEnv)
	return ctx
}

// member starts a process that runs a command of svc, and restarts it whenever it ends.
func (f *haFleet) member(ctx context.Context, name, command string, env []string) {
	m := &member{
		name: name, svc: f.svc, args: []string{command}, output: &transcript{}, done: make(chan struct{}), env: env,
	}
	f.members[name] = m
	f.running.Go(func() error { return m.run(ctx) })
}

// awaitReady waits until the API is ready. On failure, the error contains the log of the API.
func (f *haFleet) awaitReady(ctx context.Context) error {
	err := awaitReady(ctx, f.baseURL())
	if err != nil {
		output, _ := f.members["api"].output.read()
		return fmt.Errorf("the fleet does not start: %w\n%s", err, output)
	}
	return nil
}

// counts returns the sum of all partners' counts so far.
func (f *haFleet) counts() haCounts {
	var all haCounts
	for _, p := range f.partners {
		all.add(p.snapshot())
	}
	return all
}

func (f *haFleet) keepTranscripts() (string, error) { return keepTranscripts(f.members) }

// close kills the processes and stops the servers.
func (f *haFleet) close() error {
	if f.end == nil {
		return nil
	}
	f.end()
	var errs []error
	if f.running != nil {
		errs = append(errs, f.running.Wait())
	}
	for _, store := range []*models.Store{f.store, f.railStore} {
		if store != nil {
			errs = append(errs, store.Close())
		}
	}
	for _, port := range []*local.Port{f.apiPort, f.railPort} {
		if port != nil {
			errs = append(errs, port.Close())
		}
	}
	if f.proxy != nil {
		f.proxy.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, servers := range []*local.Servers{f.cache, f.railServers} {
		if servers != nil {
			errs = append(errs, servers.Stop(ctx))
		}
	}
	if group := f.redisGroup(); group != nil {
		errs = append(errs, group.Stop(ctx))
	}
	if f.receiver != nil {
		f.receiver.Close()
	}
	if f.pair != nil {
		errs = append(errs, f.pair.Stop(ctx))
	}
	return errors.Join(errs...)
}
