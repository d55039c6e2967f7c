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

// credentials are what svc dev has seeded.
type credentials struct {
	Organisations []seededOrganisation `json:"organisations"`
	CustomerApp   seededClient         `json:"customerApp"`
	OpsPassword   string               `json:"opsPassword"`
}

type seededClient struct {
	ClientID     models.ClientID `json:"clientId"`
	ClientSecret string          `json:"clientSecret"`
}

type seededOrganisation struct {
	OrganisationID models.OrganisationID `json:"organisationId"`
	seededClient
	Sites []seededSite `json:"sites"`
}

type seededSite struct {
	SiteID models.SiteID `json:"siteId"`
}

// sandboxInfo is the file for whoever uses a running svc dev: people, scripts, further processes.
type sandboxInfo struct {
	BaseURL       string               `json:"baseUrl"`
	Organisations []seededOrganisation `json:"organisations"`
	CustomerApp   seededClient         `json:"customerApp"`
	Ops           opsLogin             `json:"ops"`
	DatabaseURL   string               `json:"databaseUrl"`
	RedisURL      string               `json:"redisUrl"`
	MasterKeyFile string               `json:"masterKeyFile"`
}

type opsLogin struct {
	DashboardURL string `json:"dashboardUrl"`
	Username     string `json:"username"`
	Password     string `json:"password"`
}

func (c credentials) sandboxFile(cfg Config, dashboardURL string) sandboxInfo {
	keyFile, err := filepath.Abs(cfg.MasterKeyFile)
	if err != nil || cfg.MasterKeyFile == "" {
		keyFile = cfg.MasterKeyFile
	}
	return sandboxInfo{
		BaseURL: cfg.PublicBaseURL, Organisations: c.Organisations, CustomerApp: c.CustomerApp,
		Ops:         opsLogin{DashboardURL: dashboardURL, Username: cfg.OpsUsername, Password: cfg.OpsPassword},
		DatabaseURL: cfg.DatabaseURL, RedisURL: cfg.RedisURL, MasterKeyFile: keyFile,
	}
}

// grant is what a link to the console signs in: the first organisation's client, with its Sites.
func (c credentials) grant() console.Grant {
	first := c.Organisations[0]
	g := console.Grant{ClientID: first.ClientID, ClientSecret: first.ClientSecret}
	for i := range first.Sites { // the session shows the latest one first
		g.Sites = append(g.Sites, first.Sites[len(first.Sites)-1-i].SiteID)
	}
	return g
}

// shell is the first organisation and Site as shell variables. The values need no quoting.
func (i sandboxInfo) shell() string {
	first := i.Organisations[0]
	return fmt.Sprintf("BASE_URL=%s\nCLIENT_ID=%s\nCLIENT_SECRET=%s\nSITE=%s\n",
		i.BaseURL, first.ClientID, first.ClientSecret, first.Sites[0].SiteID)
}

// environment is what a process needs to join in, a variable a line. A master key that svc dev was given by value is not
// written down.
func (i sandboxInfo) environment() string {
	text := fmt.Sprintf("SVC_ENV=%s\nSVC_DATABASE_URL=%s\nSVC_REDIS_URL=%s\nSVC_PUBLIC_BASE_URL=%s\n", sandbox, i.DatabaseURL, i.RedisURL, i.BaseURL)
	if i.MasterKeyFile != "" {
		text += "SVC_MASTER_KEY_FILE=" + i.MasterKeyFile + "\n"
	}
	return text
}

// seed makes what a sandbox needs: two organisations with two Sites and a client each, and the customer app's client. What
// an earlier start has made in this database is kept.
func (d *dev) seed(ctx context.Context, store *models.Store) (credentials, error) {
	known, err := d.earlier(ctx, store)
	if err != nil || known.OpsPassword != "" {
		return known, err
	}
	for _, name := range []string{"First Partner", "Second Partner"} {
		organisation, err := seedOrganisation(ctx, store, name)
		if err != nil {
			return known, fmt.Errorf("seed: %w", err)
		}
		known.Organisations = append(known.Organisations, organisation)
	}
	app := &known.CustomerApp
	app.ClientID, app.ClientSecret, err = newClient(ctx, store, models.OrganisationID{}, "Customer app", models.CustomerAppScopes)
	if err != nil {
		return known, fmt.Errorf("seed: %w", err)
	}
	known.OpsPassword = rand.Text()
	return known, writePrivate(d.path(credentialsFile), known)
}

// earlier reads what was seeded before, unless that was in another database.
func (d *dev) earlier(ctx context.Context, store *models.Store) (credentials, error) {
	content, err := os.ReadFile(d.path(credentialsFile))
	if errors.Is(err, os.ErrNotExist) {
		return credentials{}, nil
	}
	var known credentials
	if err == nil {
		err = json.Unmarshal(content, &known)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("%s: %w", d.path(credentialsFile), err)
	}
	_, err = store.Client(ctx, known.CustomerApp.ClientID)
	if errors.Is(err, models.ErrNotFound) {
		return credentials{}, nil
	}
	return known, err
}

func seedOrganisation(ctx context.Context, store *models.Store, name string) (seededOrganisation, error) {
	organisation, err := store.CreateOrganisation(ctx, name)
	if err != nil {
		return seededOrganisation{}, err
	}
	seeded := seededOrganisation{OrganisationID: organisation.ID}
	for _, site := range []string{"Harbour Street", "Station Road"} {
		made, err := store.CreateSite(ctx, organisation.ID, site)
		if err != nil {
			return seeded, err
		}
		seeded.Sites = append(seeded.Sites, seededSite{made.ID})
	}
	seeded.ClientID, seeded.ClientSecret, err = newClient(ctx, store, organisation.ID, name, models.PartnerScopes)
	return seeded, err
}

// writePrivate replaces a file as a whole by JSON that only this account may read.
func writePrivate(path string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replaceFile(path, string(text)+"\n")
}

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

// writeOnce writes a private file if it is not there yet.
func writeOnce(path, content string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return replaceFile(path, content)
}
