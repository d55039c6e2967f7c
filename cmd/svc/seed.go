package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// credentials is the content of credentials.json: what svc dev has created in the database.
type credentials struct {
	Organisations []seededOrganisation `json:"organisations"`
	CustomerApp   seededClient         `json:"customerApp"`
	OpsPassword   string               `json:"opsPassword"`
}

// seededClient is an API client with its secret.
type seededClient struct {
	ClientID     models.ClientID `json:"clientId"`
	ClientSecret string          `json:"clientSecret"`
}

// seededOrganisation is an organisation with its client and its Sites.
type seededOrganisation struct {
	OrganisationID models.OrganisationID `json:"organisationId"`
	seededClient
	Sites []seededSite `json:"sites"`
}

// seededSite is a Site of an organisation.
type seededSite struct {
	SiteID models.SiteID `json:"siteId"`
}

// sandboxInfo is the content of sandbox.json: what people, scripts and further processes need to
// use a running svc dev.
type sandboxInfo struct {
	BaseURL       string               `json:"baseUrl"`
	Organisations []seededOrganisation `json:"organisations"`
	CustomerApp   seededClient         `json:"customerApp"`
	Ops           opsLogin             `json:"ops"`
	DatabaseURL   string               `json:"databaseUrl"`
	RedisURL      string               `json:"redisUrl"`
	MasterKeyFile string               `json:"masterKeyFile"`

	rail [][2]string // the variables that name the rail, with their values; "": not set
}

// opsLogin is the address of the queue dashboard, and a login for the operators' pages.
type opsLogin struct {
	DashboardURL string `json:"dashboardUrl"`
	Username     string `json:"username"`
	Password     string `json:"password"`
}

// sandboxInfo returns the description of a running svc dev. The path of the master key's file is
// absolute.
func (c credentials) sandboxInfo(cfg Config, dashboardURL string) sandboxInfo {
	keyFile, err := filepath.Abs(cfg.MasterKeyFile)
	if err != nil || cfg.MasterKeyFile == "" {
		keyFile = cfg.MasterKeyFile
	}
	return sandboxInfo{
		BaseURL: cfg.PublicBaseURL, Organisations: c.Organisations, CustomerApp: c.CustomerApp,
		Ops:         opsLogin{DashboardURL: dashboardURL, Username: cfg.OpsUsername, Password: cfg.OpsPassword},
		DatabaseURL: cfg.DatabaseURL, RedisURL: cfg.RedisURL, MasterKeyFile: keyFile,
		rail: [][2]string{{"SVC_RAIL", cfg.Rail}, {"SVC_RAIL_ID", cfg.RailID}, {"SVC_RAIL_URL", cfg.RailURL}},
	}
}

// grant returns the credentials of a sign-in link to the console: the first organisation's client,
// with its Sites.
func (c credentials) grant() console.Grant {
	first := c.Organisations[0]
	g := console.Grant{ClientID: first.ClientID, ClientSecret: first.ClientSecret}
	for i := range first.Sites { // the console shows the last Site first
		g.Sites = append(g.Sites, first.Sites[len(first.Sites)-1-i].SiteID)
	}
	return g
}

// shell returns shell commands that export the base URL, the first organisation's client and its
// first Site as variables. The values need no quoting.
func (i sandboxInfo) shell() string {
	first := i.Organisations[0]
	return fmt.Sprintf("export BASE_URL=%s\nexport CLIENT_ID=%s\nexport CLIENT_SECRET=%s\nexport SITE=%s\n",
		i.BaseURL, first.ClientID, first.ClientSecret, first.Sites[0].SiteID)
}

// environment returns the environment variables of a further process of this sandbox, such as svc
// worker, one per line. It omits the key of the rail, and a master key in SVC_MASTER_KEY, so that
// they are not written to disk.
func (i sandboxInfo) environment() string {
	text := fmt.Sprintf("SVC_ENV=%s\nSVC_DATABASE_URL=%s\nSVC_REDIS_URL=%s\nSVC_PUBLIC_BASE_URL=%s\n",
		models.EnvSandbox, i.DatabaseURL, i.RedisURL, i.BaseURL)
	if i.MasterKeyFile != "" {
		text += "SVC_MASTER_KEY_FILE=" + i.MasterKeyFile + "\n"
	}
	for _, variable := range i.rail {
		if name, value := variable[0], variable[1]; value != "" {
			text += name + "=" + value + "\n"
		}
	}
	return text
}

// seed creates two organisations with two Sites and a client each, and the customer app's client.
// If an earlier start has seeded this database, it returns those credentials.
func (d *dev) seed(ctx context.Context, store *models.Store) (credentials, error) {
	creds, err := d.loadCredentials(ctx, store)
	if err != nil || creds.OpsPassword != "" {
		return creds, err
	}
	for _, name := range []string{"First Partner", "Second Partner"} {
		organisation, err := seedOrganisation(ctx, store, name)
		if err != nil {
			return creds, fmt.Errorf("seed: %w", err)
		}
		creds.Organisations = append(creds.Organisations, organisation)
	}
	app, none := &creds.CustomerApp, models.OrganisationID{}
	client, secret, err := store.CreateClientWithSecret(ctx, none, "Customer app", models.CustomerAppScopes)
	if err != nil {
		return creds, fmt.Errorf("seed: %w", err)
	}
	app.ClientID, app.ClientSecret = client.ID, secret
	creds.OpsPassword = rand.Text()
	return creds, writePrivate(d.path(credentialsFile), creds)
}

// loadCredentials reads the credentials of an earlier start. It returns none if there was no such
// start, or if it used another database.
func (d *dev) loadCredentials(ctx context.Context, store *models.Store) (credentials, error) {
	content, err := os.ReadFile(d.path(credentialsFile))
	if errors.Is(err, os.ErrNotExist) {
		return credentials{}, nil
	}
	var creds credentials
	if err == nil {
		err = json.Unmarshal(content, &creds)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("%s: %w", d.path(credentialsFile), err)
	}
	_, err = store.Client(ctx, creds.CustomerApp.ClientID)
	if errors.Is(err, models.ErrNotFound) {
		return credentials{}, nil
	}
	return creds, err
}

// seedOrganisation creates an organisation with two Sites and a client.
func seedOrganisation(ctx context.Context, store *models.Store, name string) (seededOrganisation, error) {
	organisation, err := store.CreateOrganisation(ctx, name)
	if err != nil {
		return seededOrganisation{}, err
	}
	seeded := seededOrganisation{OrganisationID: organisation.ID}
	for _, site := range []string{"Harbour Street", "Station Road"} {
		created, err := store.CreateSite(ctx, organisation.ID, site)
		if err != nil {
			return seeded, err
		}
		seeded.Sites = append(seeded.Sites, seededSite{created.ID})
	}
	client, secret, err := store.CreateClientWithSecret(ctx, organisation.ID, name, models.PartnerScopes)
	seeded.seededClient = seededClient{client.ID, secret}
	return seeded, err
}

// writePrivate writes content as JSON to a file that only this account can read. It replaces the
// file atomically.
func writePrivate(path string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replaceFile(path, string(text)+"\n")
}

// replaceFile writes a file that only this account can read. It replaces an older file atomically.
func replaceFile(path, content string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.WriteString(content)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeOnce writes a file that only this account can read, unless the file exists.
func writeOnce(path, content string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return replaceFile(path, content)
}
