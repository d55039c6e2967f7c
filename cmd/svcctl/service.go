package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

const (
	// dialTimeout bounds the opening of a connection to the service. It is short, so that a wrong
	// address fails soon.
	dialTimeout = 1800 * time.Millisecond
	// signInTimeout bounds the request for the first access token.
	signInTimeout = 15 * time.Second
)

// servicesTopic returns the help topic "services". It says how the methods service and siteOf
// choose the service and the Site.
func servicesTopic() *cobra.Command {
	return &cobra.Command{
		Use: "services", Short: "Where addresses and credentials come from",
		Long: `A command takes base URL, client and secret from the first of these that names any of them:

  1. the profile of --profile
  2. the environment: BASE_URL, CLIENT_ID and CLIENT_SECRET, all three
  3. the profile of SVCCTL_PROFILE
  4. the profile in use, see "svcctl profiles use"
  5. sandbox.json in SVC_DATA_DIR (default .svc), which "svc dev" writes: its first organisation

The Site comes from --site, else from SITE, else from the profile or sandbox.json: its first one.
Only commands about a Site need one.

"svcctl login" stores a profile in the user's configuration folder, readable by the user alone;
SVCCTL_CONFIG names another file.`,
	}
}

// service is the address of the service that a run calls, with the credentials for it.
type service struct {
	origin       string // where the address comes from, for messages; such as `profile "staging"`
	baseURL      string
	clientID     string
	clientSecret string
	sites        []string // the first one is the default
}

// credentialVariables are the environment variables that together name a service.
var credentialVariables = []string{"BASE_URL", "CLIENT_ID", "CLIENT_SECRET"}

// service returns the service to call; see servicesTopic.
func (c *ctl) service() (service, error) {
	if c.profile != "" {
		return c.profileService(c.profile, "--profile")
	}
	if s, ok, err := c.environmentService(); ok || err != nil {
		return s, err
	}
	if name := c.getenv("SVCCTL_PROFILE"); name != "" {
		return c.profileService(name, "SVCCTL_PROFILE")
	}
	stored, err := c.loadProfiles()
	if err != nil {
		return service{}, err
	}
	if stored.Active != "" {
		return c.profileService(stored.Active, "svcctl profiles use")
	}
	return c.sandboxService()
}

// environmentService returns the service that the environment names. ok is false if none of the
// variables is set. It refuses an environment with only some of them.
func (c *ctl) environmentService() (s service, ok bool, err error) {
	var missing []string
	for _, name := range credentialVariables {
		if c.getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	switch len(missing) {
	case len(credentialVariables):
		return service{}, false, nil
	case 0:
	default:
		return service{}, true, fail(exitUsage,
			"%s must be set too: BASE_URL, CLIENT_ID and CLIENT_SECRET belong together", strings.Join(missing, " and "))
	}
	s = service{
		origin: "the environment", baseURL: c.getenv("BASE_URL"), clientID: c.getenv("CLIENT_ID"),
		clientSecret: c.getenv("CLIENT_SECRET"),
	}
	return s, true, checkBaseURL(s.baseURL, "BASE_URL")
}

// profileService returns the service of a profile. source is the flag, variable or command that
// chose the profile, for the error.
func (c *ctl) profileService(name, source string) (service, error) {
	stored, err := c.loadProfiles()
	if err != nil {
		return service{}, err
	}
	p, ok := stored.Profiles[name]
	if !ok {
		return service{}, fail(exitUsage, "%s: there is no profile %q; see svcctl profiles list", source, name)
	}
	return service{
		origin: fmt.Sprintf("profile %q", name), baseURL: p.BaseURL, clientID: p.ClientID, clientSecret: p.ClientSecret,
		sites: p.Sites,
	}, nil
}

// sandboxService returns the service of the sandbox that svc dev runs in this folder, with the
// credentials of its first organisation.
func (c *ctl) sandboxService() (service, error) {
	name := filepath.Join(cmp.Or(c.getenv("SVC_DATA_DIR"), ".svc"), "sandbox.json")
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return service{}, fail(exitUsage, `no service is named: run "svcctl login", set %s, or start `+
			`"svc dev" in this folder (there is no %s)`, strings.Join(credentialVariables, ", "), name)
	}
	if err != nil {
		return service{}, err
	}
	var info struct {
		BaseURL       string
		Organisations []struct {
			ClientID, ClientSecret string
			Sites                  []struct{ SiteID string }
		}
	}
	if err := json.Unmarshal(content, &info); err != nil || len(info.Organisations) == 0 {
		return service{}, fmt.Errorf("%s does not describe a sandbox", name)
	}
	first := info.Organisations[0]
	s := service{
		origin: name, baseURL: info.BaseURL, clientID: first.ClientID, clientSecret: first.ClientSecret,
	}
	for _, site := range first.Sites {
		s.sites = append(s.sites, site.SiteID)
	}
	return s, nil
}

// checkBaseURL refuses a malformed base URL. source says where the URL comes from, for the error.
func checkBaseURL(text, source string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return fail(exitUsage, "%s must be a URL such as https://api.example.com, not %q", source, text)
	}
	return nil
}

// siteOf returns the Site to act on; see servicesTopic.
func (c *ctl) siteOf(s service) (string, error) {
	if site := cmp.Or(c.site, c.getenv("SITE")); site != "" {
		return site, nil
	}
	if len(s.sites) > 0 {
		return s.sites[0], nil
	}
	return "", fail(exitUsage, "no Site is named: set --site or SITE (%s has none)", s.origin)
}

// connect returns a client that has signed in, and its service.
func (c *ctl) connect(ctx context.Context) (*client.Client, service, error) {
	s, err := c.service()
	if err != nil {
		return nil, s, err
	}
	api := s.client()
	return api, s, s.signIn(ctx, api)
}

// connectSite returns a client that has signed in, and the Site to act on.
func (c *ctl) connectSite(ctx context.Context) (*client.Client, string, error) {
	s, err := c.service()
	if err != nil {
		return nil, "", err
	}
	site, err := c.siteOf(s)
	if err != nil {
		return nil, "", err
	}
	api := s.client()
	return api, site, s.signIn(ctx, api)
}

// client returns a client of the service's API. It sends no request yet.
func (s service) client() *client.Client {
	transport := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		// The values of http.DefaultTransport.
		TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
	}
	return client.New(client.Config{
		BaseURL: s.baseURL, ClientID: s.clientID, ClientSecret: s.clientSecret,
		HTTP: &http.Client{Transport: transport, Timeout: time.Minute},
	})
}

// signIn obtains an access token for api. Its errors say which base URL or which credentials to
// check.
func (s service) signIn(ctx context.Context, api *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, signInTimeout)
	defer cancel()
	err := api.Authenticate(ctx)
	var refused *client.Error
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled):
		return err
	case errors.As(err, &refused) && isCredentialStatus(refused.Status):
		return fail(exitAuthentication, "%s does not accept the client id and secret of %s (client %s): %w", s.baseURL,
			s.origin, s.clientID, err)
	case errors.As(err, &refused) && codeOfStatus(refused.Status) != exitNotFound && refused.Status >= 400:
		return fmt.Errorf("sign in at %s: %w", s.baseURL, err)
	case isNetworkError(err):
		return fail(exitNetwork, "nothing answers at %s, the base URL of %s: %w", s.baseURL, s.origin, innermost(err))
	}
	return fail(exitNetwork, "%s, the base URL of %s, does not answer like the service: %w", s.baseURL, s.origin, err)
}

// isCredentialStatus reports whether the token endpoint refuses the credentials with this status.
func isCredentialStatus(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnauthorized
}

// isNetworkError reports whether a request got no response, or only a part of one.
func isNetworkError(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport)
}

// innermost returns the cause of a failed request, without its method and URL.
func innermost(err error) error {
	var transport *url.Error
	if errors.As(err, &transport) {
		return transport.Err
	}
	return err
}
