package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api"
	"partnerbilling/api/operator"
	"partnerbilling/api/web/console"
	"partnerbilling/api/web/ops"
	"partnerbilling/deploy/local"
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

// The names of svc dev's files in its data folder. The first three exist while the service is
// ready.
const (
	sandboxFile     = "sandbox.json"     // addresses and credentials of the running service
	sandboxEnvFile  = "sandbox.env"      // the first organisation and Site as shell variables
	processEnvFile  = "process.env"      // environment variables for further processes
	credentialsFile = "credentials.json" // seeded credentials, for the next start
	masterKeyFile   = "master.key"
)

// devCommand returns `svc dev`, which runs a sandbox on one machine in one process: the API, a
// worker and the operators' pages. Unless their URLs are configured, it also starts a private
// PostgreSQL and a private Redis.
func (p *program) devCommand() *cobra.Command {
	return serving("dev", "Run everything on this machine, with private databases and a seeded sandbox",
		func(ctx context.Context, _ []string) error {
			cfg, err := parseConfig(p.environ)
			if err != nil {
				return err
			}
			if cfg.Env == models.EnvProduction {
				return errors.New("svc dev is always sandbox: unset SVC_ENV")
			}
			cfg.Env, cfg.LogFormat = models.EnvSandbox, "text"
			if err := cfg.complete("127.0.0.1:8080"); err != nil {
				return err
			}
			d := &dev{program: p, cfg: cfg}
			return errors.Join(d.run(ctx), d.stop())
		})
}

// dev is a run of svc dev.
type dev struct {
	*program
	cfg     Config
	lock    io.Closer            // of the data folder; nil until acquired
	servers *local.Servers       // nil if both URLs are configured
	links   *console.SignInLinks // to the sandbox console; set by assemble

	advanced time.Duration // how far the sandbox's clock was ahead at the start
}

// run listens, and serves until ctx ends or a part fails.
func (d *dev) run(ctx context.Context) error {
	// An occupied address is the most common error. Listening first reports it at once.
	ln, err := listen(ctx, "SVC_LISTEN", d.cfg.Listen)
	if err != nil {
		return err
	}
	err = d.serve(ctx, ln)
	_ = ln.Close() // a running API has closed it already
	return err
}

// serve prepares the data folder and the servers, and runs the service.
func (d *dev) serve(ctx context.Context, ln net.Listener) error {
	if err := d.cfg.completePublicURL(ln.Addr()); err != nil {
		return err
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	s, err := d.newService(d.cfg)
	if err != nil {
		return err
	}
	s.dev = true
	s.log.DebugContext(ctx, "configuration", "config", d.cfg) // not Info: it would hide the banner
	creds, err := d.assemble(ctx, s, ln)
	if err != nil {
		return errors.Join(err, s.close())
	}
	ready := cmp.Or(s.opsURL, d.cfg.PublicBaseURL) + "/readyz"
	s.parts = append(s.parts, d.watchServers, func(ctx context.Context) error { return d.announce(ctx, creds, ready) })
	return s.run(ctx)
}

// path returns the path of a file in the data folder.
func (d *dev) path(name string) string { return filepath.Join(d.cfg.DataDir, name) }

// prepare locks the data folder, starts and migrates the databases, and creates the master key.
func (d *dev) prepare(ctx context.Context) error {
	if err := ensureDir(d.cfg.DataDir); err != nil {
		return err
	}
	var err error
	if d.lock, err = local.Lock(d.cfg.DataDir); err != nil {
		return err
	}
	if err := d.removeInfo(); err != nil {
		return err
	}
	if err := d.startServers(ctx); err != nil {
		return err
	}
	if d.cfg.MasterKey == "" && d.cfg.MasterKeyFile == "" {
		d.cfg.MasterKeyFile = d.path(masterKeyFile)
		if err := writeOnce(d.cfg.MasterKeyFile, seal.GenerateMasterKey()+"\n"); err != nil {
			return err
		}
	}
	return d.migrate(ctx)
}

// ensureDir creates the data folder. Mode 0711 lets the private servers' account enter it, but not
// list it. Each file in it is private.
func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // see above
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// startServers starts the private servers whose URLs are not configured, and sets the URLs.
func (d *dev) startServers(ctx context.Context) error {
	if d.cfg.DatabaseURL != "" && d.cfg.RedisURL != "" {
		return nil
	}
	fmt.Fprintln(d.stdout, "Starting PostgreSQL and Redis …")
	var err error
	d.servers, err = local.Start(ctx, local.Options{
		Dir: d.cfg.DataDir, Log: d.logger(d.cfg),
		WithoutPostgres: d.cfg.DatabaseURL != "", WithoutRedis: d.cfg.RedisURL != "",
	})
	if err != nil {
		return err
	}
	if d.cfg.DatabaseURL == "" {
		d.cfg.DatabaseURL = d.servers.DatabaseURL
	}
	if d.cfg.RedisURL == "" {
		d.cfg.RedisURL = d.servers.RedisURL
	}
	return nil
}

// migrate applies all pending migrations. It refuses the database of another deployment.
func (d *dev) migrate(ctx context.Context) error {
	if d.cfg.pooled() {
		return errMigratesPooled
	}
	store, err := models.Open(postgres.Config{DSN: d.cfg.DatabaseURL, MaxConns: 2, ApplicationName: "svc migrate"})
	if err != nil {
		return fmt.Errorf("SVC_DATABASE_URL: %w", err)
	}
	if err = checkDeployment(ctx, store, d.cfg.deployment(false)); err == nil {
		_, err = migrations.Up(ctx, store.DB())
	}
	return errors.Join(err, store.Close())
}

// assemble seeds the database if necessary, and adds the API, the worker and the operators' pages
// to s.
func (d *dev) assemble(ctx context.Context, s *service, ln net.Listener) (credentials, error) {
	store, err := s.openStore("dev", 0)
	if err != nil {
		return credentials{}, err
	}
	if err := s.useReplica(store); err != nil {
		return credentials{}, err
	}
	if err := s.join(ctx, store, false); err != nil { // before seed writes
		return credentials{}, err
	}
	creds, err := d.seed(ctx, store)
	if err == nil {
		_, d.advanced, err = store.Clock(ctx)
	}
	if err != nil {
		return creds, err
	}
	if s.cfg.OpsPassword == "" {
		s.cfg.OpsPassword, s.cfg.OpsRole = creds.OpsPassword, string(operator.RoleAct)
	}
	d.cfg.OpsPassword = s.cfg.OpsPassword
	if d.cfg.DevWorker == "on" {
		if err := s.addWorker(ctx, nil); err != nil {
			return creds, err
		}
	}
	pages, err := s.newOperatorPages(store)
	if err != nil {
		return creds, err
	}
	return creds, s.addAPI(ctx, ln, func(cfg *api.Config) {
		d.links = console.NewSignInLinks(d.printNextLink)
		cfg.Sandbox.Clock, cfg.Sandbox.Links, cfg.Sandbox.Faults = true, d.links, s.cfg.railName() == railSandbox
		mountOperatorPages(cfg, pages)
	})
}

// watchServers returns nil when ctx ends, and an error when a private server ends. The error ends
// svc dev.
func (d *dev) watchServers(ctx context.Context) error {
	if d.servers == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.servers.Died():
		return fmt.Errorf("a private server ended: %w", err)
	}
}

// announce waits until the URL ready reports that the service is ready. Then it writes the files of
// the running service, and prints the banner.
func (d *dev) announce(ctx context.Context, creds credentials, ready string) error {
	if err := awaitReady(ctx, ready); err != nil || ctx.Err() != nil {
		return err
	}
	file := creds.sandboxInfo(d.cfg, d.cfg.PublicBaseURL+queue.DashboardPath)
	if err := replaceFile(d.path(sandboxEnvFile), file.shell()); err != nil {
		return err
	}
	if err := replaceFile(d.path(processEnvFile), file.environment()); err != nil {
		return err
	}
	if err := writePrivate(d.path(sandboxFile), file); err != nil {
		return err
	}
	base, link := d.cfg.PublicBaseURL, d.consoleLink(creds.grant())
	if d.signsIn() {
		link += "  (signs in once)"
	}
	svcctl, clock := commandBeside("svcctl"), ""
	if d.advanced > 0 {
		clock = fmt.Sprintf("  clock         %s ahead of real time\n", d.advanced.Round(time.Second))
	}
	fmt.Fprintf(d.stdout, welcome, base, d.network(), link, d.path(sandboxFile),
		file.Organisations[0].Sites[0].SiteID, base, base+ops.Path, d.cfg.OpsUsername, clock,
		svcctl, svcctl, svcctl)
	return nil
}

// commandBeside returns the command that calls another binary in this binary's folder. The command
// is a relative path if the binary exists below the working directory, else only the name.
func commandBeside(name string) string {
	own, err := os.Executable()
	if err != nil {
		return name
	}
	here, err := os.Getwd()
	if err != nil {
		return name
	}
	path, err := filepath.Rel(here, filepath.Join(filepath.Dir(own), name))
	if err != nil || !filepath.IsLocal(path) {
		return name
	}
	if _, err := os.Stat(path); err != nil {
		return name
	}
	if filepath.Base(path) == path { // a shell looks for a bare name in PATH only
		path = "." + string(filepath.Separator) + path
	}
	return path
}

// consoleLink returns a URL of the sandbox console. The URL signs in once, unless an outside issuer
// is configured.
func (d *dev) consoleLink(g console.Grant) string {
	if !d.signsIn() {
		return d.cfg.PublicBaseURL + console.Path
	}
	return d.cfg.PublicBaseURL + d.links.Issue(g)
}

// signsIn reports whether links to the console sign in. An outside issuer of tokens prevents it.
func (d *dev) signsIn() bool { return d.cfg.IssuerURL == "" }

// printNextLink prints a new link after the previous link has been used.
func (d *dev) printNextLink(g console.Grant) {
	fmt.Fprintf(d.stdout, "\nThe console was opened. The next link is %s\n", d.consoleLink(g))
}

// network returns a line for the banner if other machines can reach SVC_LISTEN. It returns "" for a
// loopback address.
func (d *dev) network() string {
	host, _, err := net.SplitHostPort(d.cfg.Listen)
	if at := net.ParseIP(host); err != nil || host == "localhost" || at.IsLoopback() {
		return ""
	}
	return "  network       open to it: a phone there can scan the QR codes\n"
}

// welcome is the format of the banner that announce prints.
const welcome = `
The service runs at %s
%s  console       %s
  credentials   %s
  Site          %s
  API docs      %s/docs
  operators     %s  (login %s, password in the file)
%sTry, in a second terminal:
  %s trigger batch      # customers sign up, and a batch debits them
  %s trigger payment    # a customer pays a QR code
  %s listen             # webhooks as they occur
README.md shows a first billing day with curl. Ctrl-C ends the service; its data is kept.
`

// awaitReady polls url until the answer is 200 or ctx ends. It returns nil in both cases.
func awaitReady(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for pause := 10 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 200*time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// stop removes the files that describe the running service, stops the private servers, and unlocks
// the data folder. It does nothing unless prepare has locked the folder.
func (d *dev) stop() error {
	if d.lock == nil {
		return nil
	}
	err := d.removeInfo()
	if d.servers != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, d.servers.Stop(ctx))
	}
	return errors.Join(err, d.lock.Close())
}

// removeInfo removes the files that exist only while the service is ready.
func (d *dev) removeInfo() error {
	for _, name := range []string{sandboxFile, sandboxEnvFile, processEnvFile} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	return nil
}
